// Layers as the settings say: which plan each product of a layer gets.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "conformance/ranks.h"
#include "gemm/matrix.h"
#include "plait/linear.h"

namespace plait {
namespace {

TEST(LinearOptions, AreTheSettings) {
  const SettingsPlans plans({});
  const LinearOptions usual = linear_options({}, plans);
  EXPECT_TRUE(usual.recompute_all_gather && usual.aligned_packing && usual.sequence_parallel);
  EXPECT_FALSE(usual.column_backward);
  EXPECT_EQ(usual.operators.wire, kAutomaticWire);
  EXPECT_EQ(usual.operators.plans, &plans);
  const LinearOptions other = linear_options({.plan = parse_plan("serial"),
                                              .column_backward = true,
                                              .recompute_all_gather = false,
                                              .aligned_packing = false,
                                              .wire = Dtype::bf16,
                                              .threads = 3,
                                              .backend = "vector"},
                                             plans);
  EXPECT_FALSE(other.recompute_all_gather || other.aligned_packing);
  EXPECT_TRUE(other.column_backward);
  EXPECT_EQ(other.operators.wire, Dtype::bf16);
  EXPECT_EQ(other.operators.threads, 3);
  EXPECT_EQ(other.operators.backend, "vector");
  EXPECT_EQ(other.operators.plan, std::nullopt);
}

// Records the questions and the answers.
class Witness final : public PlanSource {
 public:
  explicit Witness(const Settings& settings) : plans_(settings) {}
  std::optional<Plan> find(const PlanKey& key) const override {
    const auto plan = plans_.find(key);
    heard.emplace_back(shape_of(key), plan ? name(*plan) : "");
    return plan;
  }
  mutable std::vector<std::pair<ProductShape, std::string>> heard;

 private:
  SettingsPlans plans_;
};

// 32 rows; 64 hidden and, on 2 ranks, 96 inner sizes.
constexpr std::int64_t kAllRows = 32;
constexpr std::int64_t kHidden = 64;
constexpr std::int64_t kShare = 48;
const Settings kByShape = {
    .customized = {{{.m = kAllRows, .k = kHidden, .n = kShare}, parse_plan("pipelined parts=2")},
                   {{.m = kAllRows, .k = kShare, .n = kHidden}, parse_plan("fused chunk=16")}},
    .column_backward = true};

struct Operands {
  std::int64_t outputs, inputs, x_rows, out_rows;
};

template <class Layer>
std::vector<std::pair<ProductShape, std::string>> heard_by(Communicator& comm,
                                                           const Operands& sizes) {
  const Matrix w(Dtype::bf16, sizes.outputs, sizes.inputs, 1);
  const Matrix x(Dtype::bf16, sizes.x_rows, sizes.inputs, 2);
  const Matrix grad_out(Dtype::bf16, sizes.out_rows, sizes.outputs, 3);
  Matrix out(Dtype::bf16, sizes.out_rows, sizes.outputs);
  Matrix grad_x(Dtype::bf16, sizes.x_rows, sizes.inputs);
  const Witness witness(kByShape);
  const WeightView weight = {.view = w.view, .layout = WeightLayout::out_in};
  Layer layer({.inputs = sizes.inputs, .outputs = sizes.outputs, .layout = weight.layout}, comm,
              linear_options(kByShape, witness));
  LinearState state;
  layer.forward({.x = x.view, .weight = weight, .out = out.view}, &state);
  layer.backward({.weight = weight, .grad_out = grad_out.view, .grad_x = grad_x.view}, &state);
  return witness.heard;
}

TEST(ALayer, HasAPlanForEachOfItsShapes) {
  run_as_threads(2, [](Communicator& comm) {
    const ProductShape widening = {.m = kAllRows, .k = kHidden, .n = kShare};
    const ProductShape narrowing = {.m = kAllRows, .k = kShare, .n = kHidden};
    const std::pair wide(widening, std::string("pipelined parts=2"));
    const std::pair narrow(narrowing, std::string("fused chunk=16"));
    EXPECT_EQ(
        heard_by<ColumnParallelLinear>(
            comm,
            {.outputs = kShare, .inputs = kHidden, .x_rows = kAllRows / 2, .out_rows = kAllRows}),
        (std::vector{wide, narrow}));
    EXPECT_EQ(
        heard_by<RowParallelLinear>(
            comm,
            {.outputs = kHidden, .inputs = kShare, .x_rows = kAllRows, .out_rows = kAllRows / 2}),
        (std::vector{narrow, wide}));
  });
}

// The bytes of grad_x of a column layer in bf16, without sequence parallelism.
std::vector<std::byte> grad_x_of(Communicator& comm, Dtype wire, bool column_backward) {
  constexpr std::int64_t kSide = 640;
  const Matrix w(Dtype::bf16, kSide, kSide, 1 + comm.rank());
  const Matrix x(Dtype::bf16, kAllRows, kSide, 3);
  const Matrix grad_out(Dtype::bf16, kAllRows, kSide, 4 + comm.rank());
  Matrix grad_x(Dtype::bf16, kAllRows, kSide);
  Matrix grad_weight(Dtype::f32, kSide, kSide);
  const WeightView weight = {.view = w.view, .layout = WeightLayout::out_in};
  ColumnParallelLinear layer({.inputs = kSide, .outputs = kSide, .layout = weight.layout}, comm,
                             {.sequence_parallel = false,
                              .column_backward = column_backward,
                              .operators = {.wire = wire}});
  layer.backward({.x = x.view,
                  .weight = weight,
                  .grad_out = grad_out.view,
                  .grad_x = grad_x.view,
                  .grad_weight = grad_weight.view});
  const auto* bytes = static_cast<const std::byte*>(grad_x.view.data);
  return {bytes, bytes + grad_x.view.bytes()};
}

// f32 on one host, the operands' dtype between hosts; reduced by an operator or beside a product.
TEST(LinearOptions, HaveAnAutomaticWireThatSuitsThePlaceOfTheRanks) {
  for (const bool several : {false, true}) {
    const auto run = several ? threads_over_hosts({0, 1}) : RunRanks(run_as_threads);
    run(2, [&](Communicator& comm) {
      for (const bool in_operator : {false, true}) {
        const auto automatic = grad_x_of(comm, kAutomaticWire, in_operator);
        EXPECT_EQ(automatic == grad_x_of(comm, Dtype::bf16, in_operator), several);
        EXPECT_EQ(automatic == grad_x_of(comm, Dtype::f32, in_operator), !several);
      }
    });
  }
}

}  // namespace
}  // namespace plait
