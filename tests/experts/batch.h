// Layers of experts with random weights, and batches of rows for them, which all ranks know.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "conformance/ranks.h"
#include "plait/experts.h"
#include "plait/packed_weight.h"
#include "plait/quantized.h"

namespace plait {

// Elements of a dtype, some of them negative, in f32 and as they are.
struct Values {
  Values() = default;
  Values(Dtype type, std::int64_t rows, std::int64_t cols, float scale, std::minstd_rand& random);

  TensorView view() { return {.data = data.data(), .dtype = dtype, .rows = rows, .cols = cols}; }
  ConstTensorView view() const {
    return {.data = data.data(), .dtype = dtype, .rows = rows, .cols = cols};
  }
  // Some rows and columns.
  Values pick(const std::vector<std::int64_t>& of_rows,
              const std::vector<std::int64_t>& of_cols) const;

  float at(std::int64_t row, std::int64_t col) const {
    return exact[static_cast<std::size_t>(row * cols + col)];
  }

  Dtype dtype = Dtype::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<std::byte> data;
  std::vector<float> exact;
};

// The weights of all experts, and what they are packed in. If experts are cut, those of all parts:
// together they are the experts of a description with as many inner features in one part.
struct Experts {
  // `scheme`: "" for plain weights, "packed", or that of a quantised weight.
  Experts(ExpertsDesc desc, Dtype dtype, const std::string& scheme, bool has_biases);

  ExpertsDesc desc;
  std::deque<Values> up, down, up_biases, down_biases;
  std::deque<PackedWeight> packed;
  std::vector<Weight> up_weights, down_weights;
  std::vector<ConstTensorView> up_bias_views, down_bias_views;
};

// The rows of all ranks, one rank's after another.
struct Batch {
  // One slot in ten has no expert, and one has the expert of the slot before it.
  Batch(const ExpertsDesc& desc, std::vector<std::int64_t> rows_of_ranks, unsigned seed = 1);

  std::int64_t rows() const;
  std::int64_t first_row(int rank) const;

  std::vector<std::int64_t> rows_of_ranks;
  Values x;
  std::vector<std::int64_t> ids;
  std::vector<float> weights;
};

// The call of one rank, with the rows [first, first + rows) of the batch.
struct RankCall {
  RankCall(const Experts& experts, const Batch& batch, std::int64_t first, std::int64_t rows,
           const std::vector<std::int64_t>& own);

  ExpertsForward call() const;

  std::int64_t rows;
  std::vector<Weight> up, down;
  std::vector<ConstTensorView> up_biases, down_biases;
  ConstTensorView x;
  std::span<const std::int64_t> ids;
  std::span<const float> weights;
  std::vector<std::byte> out;
  TensorView out_view;
};

// The result of one rank with all experts, serially.
std::vector<std::byte> by_one_rank(const Experts& experts, const Batch& batch);

// Runs this rank's part of the batch, and expects its bits to be those of `wanted`.
void expect_bits(Communicator& comm, const Experts& experts, const Batch& batch,
                 const ExpertsOptions& options, const std::vector<std::byte>& wanted);

}  // namespace plait
