// The two grouped products of a layer and what is between them, for some rows of some experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "comm/core/group.h"
#include "experts/activation.h"
#include "experts/placement.h"
#include "experts/polled_product.h"
#include "plait/buffer.h"
#include "plait/experts.h"

namespace plait::experts {

class Products {
 public:
  Products(const ExpertsDesc& desc, const ExpertsOptions& options, const comm::Group& group);

  // The operands of one call, which must live until it ends. `biases`: of `down`.
  void begin(const ExpertsForward& call, std::vector<ConstTensorView> biases) {
    call_ = &call;
    down_biases_ = std::move(biases);
  }

  struct Rows {
    std::int64_t first_group;
    std::span<const std::int64_t> counts;  // of this group and those after it
    ConstTensorView x;                     // their rows
    ConstTensorView weights;               // [rows, 4] bytes: an f32 each; no data: none
    TensorView out;
  };
  void multiply(const Rows& rows, PollStep poll_step);

  std::size_t held_bytes() const {
    return up_.held_bytes() + down_.held_bytes() + outputs_.bytes() + inputs_.bytes();
  }

 private:
  void multiply_piece(const Rows& rows, PollStep poll_step);

  ExpertsDesc desc_;
  int threads_;
  const comm::Group& group_;
  GroupedGemm up_;
  GroupedGemm down_;
  const ExpertsForward* call_ = nullptr;
  std::vector<ConstTensorView> down_biases_;
  Buffer outputs_;  // of the first product
  Buffer inputs_;   // of the second one
};

// Those of first parts: others have no data.
std::vector<ConstTensorView> used_biases(std::span<const ConstTensorView> biases,
                                         const Placement& placement, int rank);

// The weight of a row. `weights`: as in Rows.
float weight_of(const ConstTensorView& weights, std::int64_t row);

}  // namespace plait::experts
