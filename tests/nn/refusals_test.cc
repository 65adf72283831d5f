// What the layers refuse: one sentence each, with the values, before anything is written.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "conformance/ranks.h"
#include "nn/layer.h"
#include "tensor/sentence_of.h"

namespace plait {
namespace {

using conformance::expect_error;
using conformance::run_as_threads;

// Of a layer of one rank, after a forward.
template <class Change>
std::string refused(LayerKind kind, const Change& change) {
  std::string sentence;
  run_as_threads(1,
                 [&](Communicator& comm) {
                   const LayerProblem problem(kind, 5, comm);
                   LinearBackward call = problem.backward();
                   std::memset(problem.grad_weight.view.data, 0x5A,
                               problem.grad_weight.view.row_bytes());
                   change(call);
                   LinearState state;
                   const auto run = [&](auto layer) {
                     layer.forward(problem.forward(), &state);
                     sentence = sentence_of([&] { layer.backward(call, state); });
                   };
                   if (kind == LayerKind::column) {
                     run(ColumnParallelLinear(problem.weight(), comm));
                   } else {
                     run(RowParallelLinear(problem.weight(), comm));
                   }
                   unsigned char first = 0;
                   std::memcpy(&first, problem.grad_weight.view.data, 1);
                   EXPECT_EQ(first, 0x5A);
                 },
                 {});
  return sentence;
}

TEST(LinearRefusals, NameTheGradientAndItsSizes) {
  EXPECT_EQ(refused(LayerKind::column, [](auto& call) { call.grad_out.rows = 4; }),
            "ColumnParallelLinear: grad_out is 4 x 160, not 5 x 160");
  EXPECT_EQ(refused(LayerKind::row, [](auto& call) { call.grad_x.cols = 7; }),
            "RowParallelLinear: grad_x is 5 x 7, not 5 x 96");
  EXPECT_EQ(refused(LayerKind::row, [](auto& call) { call.grad_weight.rows = 2; }),
            "RowParallelLinear: grad_weight is 2 x 96, not 160 x 96");
  EXPECT_EQ(refused(LayerKind::column, [](auto& call) { call.grad_bias.rows = 2; }),
            "ColumnParallelLinear: grad_bias is 2 x 160, not 1 x 160");
  EXPECT_EQ(refused(LayerKind::column, [](auto& call) { call.grad_x.dtype = Dtype::s8; }),
            "ColumnParallelLinear: grad_x is s8; there are f32, bf16 and f16");
  EXPECT_EQ(
      refused(LayerKind::column, [](auto& call) { call.grad_bias.data = call.grad_weight.row(1); }),
      "ColumnParallelLinear: grad_weight overlaps grad_bias");
}

TEST(LinearRefusals, AStateOfNoForward) {
  run_as_threads(1,
                 [](Communicator& comm) {
                   const LayerProblem problem(LayerKind::row, 5, comm);
                   RowParallelLinear layer(problem.weight(), comm);
                   EXPECT_EQ(
                       sentence_of([&] { layer.backward(problem.backward(), LinearState()); }),
                       "RowParallelLinear: backward was given a state of no forward");
                   // Nor of one that was refused.
                   LinearState state;
                   layer.forward(problem.forward(), &state);
                   LinearForward wrong = problem.forward();
                   wrong.out.cols = 3;
                   EXPECT_EQ(sentence_of([&] { layer.forward(wrong, &state); }),
                             "matmul_reduce_scatter: out is 5 x 3, not 5 x 160");
                   EXPECT_EQ(sentence_of([&] { layer.backward(problem.backward(), state); }),
                             "RowParallelLinear: backward was given a state of no forward");
                 },
                 {});
}

TEST(LinearRefusals, WeightsThatDoNotFit) {
  run_as_threads(
      1,
      [](Communicator& comm) {
        const LayerProblem problem(LayerKind::column, 5, comm);
        const PackedWeight packed({.view = problem.w(), .layout = WeightLayout::out_in});
        EXPECT_EQ(sentence_of([&] {
                    const ColumnParallelLinear layer(
                        {.weight = std::cref(packed), .backward = std::cref(packed)}, comm);
                  }),
                  "ColumnParallelLinear: the weight for backward takes 96 inputs to 160 outputs, "
                  "but the layer takes 96 to 160, which backward goes the other way");
        ColumnParallelLinear layer({.weight = std::cref(packed)}, comm);
        LinearState state;
        layer.forward(problem.forward(), &state);
        EXPECT_EQ(sentence_of([&] { layer.backward(problem.backward(), state); }),
                  "ColumnParallelLinear: grad_x takes the weight the other way round, and a packed "
                  "one can't be turned: give a packed `backward` weight too");
      },
      {});
}

TEST(LinearRefusals, ALayerThatWasMoved) {
  run_as_threads(
      1,
      [](Communicator& comm) {
        const LayerProblem problem(LayerKind::row, 5, comm);
        RowParallelLinear layer(problem.weight(), comm);
        const RowParallelLinear taken = std::move(layer);
        EXPECT_EQ(sentence_of([&] { layer.forward(problem.forward()); }),  // NOLINT: on purpose
                  "RowParallelLinear: this layer was moved to another");
      },
      {});
}

// Ranks that make different layers all say so, in the same words, when they make them.
TEST(LinearRefusals, RanksThatDisagree) {
  run_as_threads(3,
                 [](Communicator& comm) {
                   const LayerProblem problem(LayerKind::column, 12, comm);
                   const Error error = expect_error(Code::mismatch, [&] {
                     const ColumnParallelLinear layer(problem.weight(), comm,
                                                      {.sequence_parallel = comm.rank() != 2});
                   });
                   EXPECT_STREQ(
                       error.what(),
                       "ColumnParallelLinear: rank 2 has sequence_parallel=0 and rank 0 has 1");
                 },
                 {});
  run_as_threads(
      2,
      [](Communicator& comm) {
        const Matrix w(Dtype::bf16, 8, comm.rank() == 0 ? 16 : 24);
        const Error error = expect_error(Code::mismatch, [&] {
          const ColumnParallelLinear layer(
              {.weight = WeightView{.view = w.view, .layout = WeightLayout::out_in}}, comm);
        });
        EXPECT_STREQ(error.what(), "ColumnParallelLinear: rank 1 has inputs=24 and rank 0 has 16");
      },
      {});
  run_as_threads(2,
                 [](Communicator& comm) {
                   const Matrix w(comm.rank() == 0 ? Dtype::bf16 : Dtype::f32, 8, 16);
                   const Error error = expect_error(Code::mismatch, [&] {
                     const RowParallelLinear layer(
                         {.weight = WeightView{.view = w.view, .layout = WeightLayout::out_in}},
                         comm);
                   });
                   EXPECT_STREQ(error.what(),
                                "RowParallelLinear: rank 1 has a weight of f32 and rank 0 of bf16");
                 },
                 {});
}

// Else those that have it would wait in the first backward for the one that refuses.
TEST(LinearRefusals, RanksOfWhichOneCannotTurnItsWeight) {
  run_as_threads(
      2,
      [](Communicator& comm) {
        const Matrix w(Dtype::bf16, 8, 16);
        const WeightView view = {.view = w.view, .layout = WeightLayout::out_in};
        const PackedWeight packed(view);
        const PackedWeight turned({.view = w.view, .layout = WeightLayout::in_out});
        const LinearWeight weight = {
            .weight = packed,
            .backward = comm.rank() == 0 ? std::optional<OpWeight>(turned) : std::nullopt};
        const Error error =
            expect_error(Code::mismatch, [&] { const RowParallelLinear layer(weight, comm); });
        EXPECT_STREQ(error.what(),
                     "RowParallelLinear: rank 1 has as backward weight: none; and rank "
                     "0: bf16");
      },
      {});
}

// In its own name, and when it is made.
TEST(LinearRefusals, WhatItsOperatorsCannotDo) {
  run_as_threads(1,
                 [](Communicator& comm) {
                   const LayerProblem problem(LayerKind::row, 5, comm);
                   const auto refusal_of = [&](const OpOptions& options) {
                     return sentence_of([&] {
                       RowParallelLinear(problem.weight(), comm, {.operators = options});
                     });
                   };
                   EXPECT_EQ(refusal_of({.wire = Dtype::s8}),
                             "RowParallelLinear: the wire is s8; there are f32, bf16 and f16");
                   EXPECT_EQ(refusal_of({.threads = -3}),
                             "RowParallelLinear: threads=-3 is not between 0 and 1024");
                   EXPECT_EQ(refusal_of({.backend = "banana"}),
                             "RowParallelLinear: there is no backend banana");
                 },
                 {});
}

}  // namespace
}  // namespace plait
