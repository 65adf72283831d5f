// Which panels of a weight are packed, and where.
#pragma once

#include <cstdint>
#include <vector>

#include "gemm/panel_memory.h"
#include "gemm/panels.h"
#include "plait/gemm.h"
#include "plait/panel_cache.h"

namespace plait {

class PanelCache::State {
 public:
  // Error{invalid_argument} where it keeps panels of another weight. `k`: with the padding.
  void check(const WeightView& weight, std::int64_t k) const;

  void forget();

  // Room for all panels of the weight.
  void prepare(const WeightView& weight, std::int64_t k);

  // From panel 0 on.
  std::byte* data() const { return memory_.data(); }
  std::size_t held_bytes() const { return memory_.bytes(); }
  bool has(std::int64_t panel) const {
    return panel < static_cast<std::int64_t>(packed_.size()) &&
           packed_[static_cast<std::size_t>(panel)] != 0;
  }
  bool has_all(Range panels) const;

  // Called by the thread that has packed it. Others ask for it in later runs only.
  void has_packed(std::int64_t panel) { packed_[static_cast<std::size_t>(panel)] = 1; }

 private:
  WeightView weight_ = {};  // never read
  std::int64_t k_ = 0;
  gemm::PanelMemory memory_;
  std::vector<char> packed_;  // by panel; none: of no weight. Not bits, which threads would share
};

}  // namespace plait
