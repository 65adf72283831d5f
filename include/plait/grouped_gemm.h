// Products of groups of rows, each by a weight of its own, in one call: the experts of a layer.
//
//   plait::GroupedGemm gemm = plait::select_grouped_gemm({.m = 16, .n = 1536, .k = 2048});
//   gemm.run({.x = x, .rows = {counts}, .weights = {weights}, .out = y});
//
// The rows of the first group come first, in x and in out. A group may have no rows: its weight is
// not read. Threads share the columns of all groups, 64 at a time. Where groups have few rows, each
// thread gets about the same bytes of weights, which are read once; where they have many, the same
// number of multiplications, even if one group has most rows. The bits of an element are those that
// a Gemm of the same description gives (plait/gemm.h): they don't depend on the groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "plait/export.h"
#include "plait/gemm.h"
#include "plait/tensor_view.h"
#include "plait/weight.h"

namespace plait {

struct GroupedGemmCall {
  ConstTensorView x;                             // [all rows, k]
  std::span<const std::int64_t> rows;            // of each group
  std::span<const Weight> weights;               // of each group, all of the description's kind
  TensorView out;                                // [all rows, n]
  std::span<const ConstTensorView> biases = {};  // of each group, [1, n]; or none at all

  // Called by the thread that has finished these rows and columns of the group, counted within it;
  // several threads may call at once.
  std::function<void(std::int64_t group, const Tile& tile)> on_tile = {};
};

// For one thread at a time. It keeps its working memory from one run to the next.
class PLAIT_EXPORT GroupedGemm {
 public:
  class State;
  explicit GroupedGemm(std::unique_ptr<State> state);
  GroupedGemm(GroupedGemm&&) noexcept;
  GroupedGemm& operator=(GroupedGemm&&) noexcept;
  ~GroupedGemm();

  const GemmDesc& desc() const;
  std::string_view backend() const;
  std::size_t held_bytes() const;

  // Error{invalid_argument}, with the group and the values, before anything is written. If memory
  // runs out or a hook throws, `out` is undefined.
  void run(const GroupedGemmCall& call);

 private:
  std::unique_ptr<State> state_;
};

// desc.m is the usual number of rows in a group.
PLAIT_EXPORT GroupedGemm select_grouped_gemm(const GemmDesc& desc, const GemmOptions& options = {});

}  // namespace plait
