// The two grouped products of a layer and what is between them, for some rows of some experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "comm/core/group.h"
#include "experts/activation.h"
#include "experts/exchange.h"
#include "plait/buffer.h"
#include "plait/experts.h"
#include "plait/grouped_gemm.h"

namespace plait::experts {

class Products {
 public:
  Products(const ExpertsDesc& desc, const ExpertsOptions& options, const comm::Group& group);

  // The operands of one call, which must live until it ends.
  void begin(const ExpertsForward& call) { call_ = &call; }

  struct Rows {
    std::int64_t first_group;
    std::span<const std::int64_t> counts;  // of this group and those after it
    ConstTensorView x;                     // their rows
    const std::byte* weights;  // an f32 behind each row of x, `x`'s rows apart; null: none
    TensorView out;
  };
  void multiply(const Rows& rows, PollStep poll_step);

  std::size_t held_bytes() const {
    return up_.held_bytes() + down_.held_bytes() + outputs_.bytes() + inputs_.bytes();
  }

 private:
  void multiply_part(const Rows& part, PollStep poll_step);
  void run(GroupedGemm& gemm, const GroupedGemmCall& call, PollStep poll_step) const;

  ExpertsDesc desc_;
  int threads_;
  const comm::Group& group_;
  GroupedGemm up_;
  GroupedGemm down_;
  const ExpertsForward* call_ = nullptr;
  Buffer outputs_;  // of the first product
  Buffer inputs_;   // of the second one
  std::vector<std::int64_t> counts_;
};

}  // namespace plait::experts
