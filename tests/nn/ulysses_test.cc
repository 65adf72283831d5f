// The layers of plait/ulysses_layers.h: forward and grad_x have the bits of one rank, and gradients
// of weights are those of a rank's own rows.
#include "plait/ulysses_layers.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "conformance/ranks.h"
#include "gemm/matrix.h"
#include "ops/shapes.h"
#include "tensor/compare.h"

namespace plait {
namespace {

constexpr std::int64_t kRows = 75;
constexpr std::int64_t kHidden = 80;
constexpr Heads kHeads = {.heads = 9, .kv_heads = 3, .size = 16};
constexpr std::int64_t kQKV = (9 + 2 * 3) * 16;
constexpr std::int64_t kQ = 9 * 16;

Matrix columns_of(const ConstTensorView& whole, const std::vector<ColumnRange>& group) {
  std::int64_t count = 0;
  for (const ColumnRange& range : group) count += range.count;
  Matrix part(whole.dtype, whole.rows, count);
  std::int64_t at = 0;
  for (const ColumnRange& range : group) {
    for (std::int64_t row = 0; row < whole.rows; ++row) {
      const ConstTensorView from =
          whole.column_range(range.first, range.first + range.count).row_range(row, row + 1);
      std::memcpy(part.view.column_range(at, at + range.count).row(row), from.data, from.bytes());
    }
    at += range.count;
  }
  return part;
}

Matrix product(const GemmCall& call, std::int64_t m, std::int64_t n, std::int64_t k) {
  Matrix out(Dtype::bf16, m, n);
  GemmCall to = call;
  to.out = out.view;
  select_gemm({.m = m, .n = n, .k = k}).run(to);
  return out;
}

WeightView plain(const Matrix& w) { return {.view = w.view, .layout = WeightLayout::out_in}; }
WeightView turned(const Matrix& w) { return {.view = w.view, .layout = WeightLayout::in_out}; }

// A gradient of this rank's own rows: the product that one rank makes of them.
Matrix gradient(const ConstTensorView& grad_out, const ConstTensorView& x) {
  return product({.x = {.view = grad_out, .transposed = true},
                  .weight = WeightView{.view = x, .layout = WeightLayout::in_out}},
                 grad_out.cols, x.cols, x.rows);
}

class UlyssesLayers : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, UlyssesLayers, testing::Values(1, 2, 3));

TEST_P(UlyssesLayers, HaveTheBitsOfOneRank) {
  run_as_threads(GetParam(), [](Communicator& comm) {
    const int world = comm.world();
    const auto rank = static_cast<std::size_t>(comm.rank());
    const Range own = ops::shard_of(kRows, comm.rank(), world);
    const std::int64_t rows = plan::length(own);
    const auto mine = [&](const Matrix& whole) { return whole.view.row_range(own.begin, own.end); };
    const Matrix x(Dtype::bf16, kRows, kHidden, 1);
    const Matrix w(Dtype::bf16, kQKV, kHidden, 2);
    const Matrix bias(Dtype::bf16, 1, kQKV, 3);
    const Matrix grad(Dtype::bf16, kRows, kQKV, 4);
    const ColumnGroups columns = qkv_columns(kHeads, world);
    UlyssesQKV qkv(
        {.inputs = kHidden, .outputs = kQKV, .layout = WeightLayout::out_in, .columns = columns},
        comm);
    const Matrix y =
        product({.x = {x.view}, .weight = plain(w), .bias = bias.view}, kRows, kQKV, kHidden);
    const Matrix wanted = columns_of(y.view, columns[rank]);
    const Matrix heads(Dtype::bf16, kRows, wanted.view.cols);
    qkv.forward({.x = mine(x), .weight = plain(w), .out = heads.view, .bias = bias.view});
    EXPECT_TRUE(tensor::same_bits(heads.view, wanted.view));

    const Matrix grad_heads = columns_of(grad.view, columns[rank]);
    const Matrix grad_x(Dtype::bf16, rows, kHidden);
    const Matrix grad_w(Dtype::bf16, kQKV, kHidden);
    const Matrix grad_bias(Dtype::bf16, 1, kQKV);
    const LinearBackward all = {.x = mine(x),
                                .weight = plain(w),
                                .grad_out = grad_heads.view,
                                .grad_x = grad_x.view,
                                .grad_weight = grad_w.view,
                                .grad_bias = grad_bias.view};
    qkv.backward(all);
    const Matrix grad_y = product({.x = {grad.view}, .weight = turned(w)}, kRows, kHidden, kQKV);
    const Matrix own_grad_w = gradient(mine(grad), mine(x));
    EXPECT_TRUE(tensor::same_bits(grad_x.view, mine(grad_y)));
    EXPECT_TRUE(tensor::same_bits(grad_w.view, own_grad_w.view));
    // Without the gradient of x there is no product, and the same gradients.
    const Matrix again(Dtype::bf16, kQKV, kHidden);
    const Matrix bias_again(Dtype::bf16, 1, kQKV);
    LinearBackward some = all;
    some.grad_x = {};
    some.grad_weight = again.view;
    some.grad_bias = bias_again.view;
    qkv.backward(some);
    EXPECT_TRUE(tensor::same_bits(again.view, own_grad_w.view));
    EXPECT_TRUE(tensor::same_bits(bias_again.view, grad_bias.view));

    const Matrix w_out(Dtype::bf16, kHidden, kQ, 5);
    const Matrix attended(Dtype::bf16, kRows, kQ, 6);
    const Matrix grad_out(Dtype::bf16, kRows, kHidden, 7);
    const ColumnGroups own_heads = head_columns(kHeads, world);
    UlyssesOutput output(
        {.inputs = kQ, .outputs = kHidden, .layout = WeightLayout::out_in, .columns = own_heads},
        comm);
    const Matrix part = columns_of(attended.view, own_heads[rank]);
    const Matrix z = product({.x = {attended.view}, .weight = plain(w_out)}, kRows, kHidden, kQ);
    const Matrix out(Dtype::bf16, rows, kHidden);
    UlyssesState state;
    output.forward({.x = part.view, .weight = plain(w_out), .out = out.view}, &state);
    EXPECT_TRUE(tensor::same_bits(out.view, mine(z)));
    const Matrix grad_z =
        product({.x = {grad_out.view}, .weight = turned(w_out)}, kRows, kQ, kHidden);
    const Matrix grad_z_part = columns_of(grad_z.view, own_heads[rank]);
    const Matrix own_grad_out = gradient(mine(grad_out), mine(attended));
    for (const UlyssesState* kept :
         {static_cast<const UlyssesState*>(&state), static_cast<const UlyssesState*>(nullptr)}) {
      const Matrix grad_part(Dtype::bf16, kRows, part.view.cols);
      const Matrix grad_w_out(Dtype::bf16, kHidden, kQ);
      output.backward({.x = kept == nullptr ? ConstTensorView(part.view) : ConstTensorView{},
                       .weight = plain(w_out),
                       .grad_out = mine(grad_out),
                       .grad_x = grad_part.view,
                       .grad_weight = grad_w_out.view},
                      kept);
      EXPECT_TRUE(tensor::same_bits(grad_part.view, grad_z_part.view));
      EXPECT_TRUE(tensor::same_bits(grad_w_out.view, own_grad_out.view));
    }
  });
}

TEST(UlyssesLayers, RefuseWhatDoesNotFit) {
  run_as_threads(1, [](Communicator& comm) {
    const Matrix x(Dtype::bf16, 4, 8);
    const Matrix w(Dtype::bf16, 16, 8);
    const Matrix out(Dtype::bf16, 4, 16);
    UlyssesQKV qkv({.inputs = 9,
                    .outputs = 16,
                    .layout = WeightLayout::out_in,
                    .columns = equal_columns(16, 1)},
                   comm);
    const Error weight = expect_error(Code::invalid_argument, [&] {
      qkv.forward({.x = x.view, .weight = plain(w), .out = out.view});
    });
    EXPECT_EQ(std::string(weight.what()), "UlyssesQKV: weight has n=16 k=8, not n=16 k=9");
    UlyssesOutput output({.inputs = 8,
                          .outputs = 16,
                          .layout = WeightLayout::out_in,
                          .columns = equal_columns(8, 1)},
                         comm);
    const UlyssesState state;
    const Error none = expect_error(Code::invalid_argument, [&] {
      output.backward({.grad_out = out.view, .grad_weight = w.view}, &state);
    });
    EXPECT_EQ(std::string(none.what()), "UlyssesOutput: backward was given a state of no forward");
    const Error no_weight = expect_error(
        Code::invalid_argument, [&] { output.backward({.grad_out = out.view, .grad_x = x.view}); });
    EXPECT_EQ(std::string(no_weight.what()),
              "UlyssesOutput: grad_x needs a plain weight, or the turned one");

    const auto refusal = [](auto&& call) {
      return std::string(expect_error(Code::invalid_argument, call).what());
    };
    const Matrix bias(Dtype::bf16, 1, 16);
    EXPECT_EQ(refusal([&] { output.backward({.grad_out = x.view, .grad_bias = bias.view}); }),
              "UlyssesOutput: grad_out is 4 x 8, not 4 x 16");
    EXPECT_EQ(
        refusal([&] { output.backward({.x = x.view, .grad_out = out.view, .grad_x = x.view}); }),
        "UlyssesOutput: grad_x overlaps x");
    EXPECT_EQ(refusal([&] { qkv.backward({.grad_out = out.view, .grad_weight = w.view}); }),
              "UlyssesQKV: grad_weight takes x, and the call has none");
    UlyssesOutput narrow(
        {.inputs = 4, .outputs = 2, .layout = WeightLayout::out_in, .columns = equal_columns(4, 1)},
        comm);
    const Matrix narrow_w(Dtype::bf16, 2, 4);
    const Matrix narrow_out(Dtype::bf16, 4, 2);
    UlyssesState narrow_state;
    narrow.forward(
        {.x = x.view.column_range(0, 4), .weight = plain(narrow_w), .out = narrow_out.view},
        &narrow_state);
    EXPECT_EQ(refusal([&] {
                output.backward({.grad_out = out.view, .grad_weight = w.view}, &narrow_state);
              }),
              "UlyssesOutput: backward was given the state of another layer, whose weight has 4 "
              "inputs, not 8");
  });
}

}  // namespace
}  // namespace plait
