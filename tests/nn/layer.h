// Small layers for tests: one rank's operands, which are its part of all ranks' operands.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "gemm/matrix.h"
#include "nn/row_exchange.h"
#include "plait/collectives.h"
#include "plait/linear.h"
#include "tensor/compare.h"

namespace plait {

enum class LayerKind : std::uint8_t { column, row };

inline std::string name_of(LayerKind kind) { return kind == LayerKind::row ? "Row" : "Column"; }

// Calls `body` with a layer of this kind.
template <class Body>
void with_layer(LayerKind kind, const LinearDesc& desc, Communicator& comm,
                const LinearOptions& options, const Body& body) {
  if (kind == LayerKind::column) {
    body(ColumnParallelLinear(desc, comm, options));
  } else {
    body(RowParallelLinear(desc, comm, options));
  }
}

// Weight, tokens and gradients have the same values, however many ranks share them.
struct LayerProblem {
  LayerProblem(LayerKind layer, std::int64_t tokens, const Communicator& comm,
               bool sequence_parallel = true, Dtype dtype = Dtype::bf16)
      : kind(layer),
        m(tokens),
        all_x(dtype, m, kInputs, 1),
        all_w(dtype, kOutputs, kInputs, 2),
        all_grad_out(dtype, m, kOutputs, 3),
        own_rows(sequence_parallel ? nn::shard_of(m, comm) : Range{0, m}),
        own(nn::shard_of(kind == LayerKind::column ? kOutputs : kInputs, comm)),
        out(dtype, out_rows().end - out_rows().begin, outputs().end - outputs().begin),
        grad_x(dtype, x_rows().end - x_rows().begin, inputs().end - inputs().begin),
        grad_weight(Dtype::f32, out.view.cols, grad_x.view.cols),
        grad_bias(Dtype::f32, 1, out.view.cols) {}

  static constexpr std::int64_t kInputs = 96;
  static constexpr std::int64_t kOutputs = 160;

  Range inputs() const { return kind == LayerKind::row ? own : Range{0, kInputs}; }
  Range outputs() const { return kind == LayerKind::column ? own : Range{0, kOutputs}; }
  Range x_rows() const { return kind == LayerKind::column ? own_rows : Range{0, m}; }
  Range out_rows() const { return kind == LayerKind::row ? own_rows : Range{0, m}; }

  static TensorView part(const TensorView& view, Range rows, Range columns) {
    return view.row_range(rows.begin, rows.end).column_range(columns.begin, columns.end);
  }
  TensorView x() const { return part(all_x.view, x_rows(), inputs()); }
  TensorView w() const { return part(all_w.view, outputs(), inputs()); }
  TensorView grad_out() const { return part(all_grad_out.view, out_rows(), outputs()); }

  WeightView weight() const { return {.view = w(), .layout = WeightLayout::out_in}; }
  LinearDesc desc() const {
    return {.inputs = w().cols,
            .outputs = w().rows,
            .layout = WeightLayout::out_in,
            .weight = {.dtype = w().dtype}};
  }
  LinearForward forward() const { return {.x = x(), .weight = weight(), .out = out.view}; }
  LinearBackward backward() const {
    return {.x = x(),
            .weight = weight(),
            .grad_out = grad_out(),
            .grad_x = grad_x.view,
            .grad_weight = grad_weight.view,
            .grad_bias = grad_bias.view};
  }

  LayerKind kind;
  std::int64_t m;
  Matrix all_x;
  Matrix all_w;
  Matrix all_grad_out;
  Range own_rows;
  Range own;
  Matrix out;
  Matrix grad_x;
  Matrix grad_weight;
  Matrix grad_bias;
};

// Forward and backward of a layer made for it.
inline void run_step(const LayerProblem& problem, Communicator& comm,
                     const LinearOptions& options = {}) {
  with_layer(problem.kind, problem.desc(), comm, options, [&](auto layer) {
    LinearState state;
    layer.forward(problem.forward(), &state);
    layer.backward(problem.backward(), &state);
  });
}

inline void expect_same(const LayerProblem& got, const LayerProblem& want, const char* what) {
  EXPECT_TRUE(tensor::same_bits(got.out.view, want.out.view)) << what;
  EXPECT_TRUE(tensor::same_bits(got.grad_x.view, want.grad_x.view)) << what;
  EXPECT_TRUE(tensor::same_bits(got.grad_weight.view, want.grad_weight.view)) << what;
  EXPECT_TRUE(tensor::same_bits(got.grad_bias.view, want.grad_bias.view)) << what;
}

}  // namespace plait
