// Refusals of the layers: one sentence each, with the values, before anything is written.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "conformance/ranks.h"
#include "nn/layer.h"
#include "tensor/sentence_of.h"

namespace plait {
namespace {

// Returns the refusal of a changed backward call of a one-rank layer, after a forward.
template <class Change>
std::string refused(LayerKind kind, const Change& change) {
  std::string sentence;
  run_as_threads(1, [&](Communicator& comm) {
    const LayerProblem problem(kind, 5, comm);
    LinearBackward call = problem.backward();
    std::memset(problem.grad_weight.view.data, 0x5A, problem.grad_weight.view.row_bytes());
    change(call);
    LinearState state;
    with_layer(kind, problem.desc(), comm, {}, [&](auto layer) {
      layer.forward(problem.forward(), &state);
      sentence = sentence_of([&] { layer.backward(call, &state); });
    });
    unsigned char first = 0;
    std::memcpy(&first, problem.grad_weight.view.data, 1);
    EXPECT_EQ(first, 0x5A);
  });
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

TEST(LinearRefusals, SharesOfASumThatALayerDoesNotMake) {
  run_as_threads(1, [](Communicator& comm) {
    const LinearOptions options = {.operators = {.shares = 4}};
    const LayerProblem column(LayerKind::column, 5, comm);
    const LayerProblem row(LayerKind::row, 5, comm);
    const std::string why =
        ": shares=4; only matmul is told of shares, and a layer counts those of its ranks "
        "itself";
    EXPECT_EQ(sentence_of([&] { ColumnParallelLinear(column.desc(), comm, options); }),
              "ColumnParallelLinear" + why);
    EXPECT_EQ(sentence_of([&] { RowParallelLinear(row.desc(), comm, options); }),
              "RowParallelLinear" + why);
  });
}

TEST(LinearRefusals, AWholeSizeThatALayerKnows) {
  run_as_threads(1, [](Communicator& comm) {
    const LayerProblem row(LayerKind::row, 5, comm);
    EXPECT_EQ(sentence_of([&] {
                RowParallelLinear(row.desc(), comm, {.operators = {.whole_size = 4096}});
              }),
              "RowParallelLinear: whole_size=4096; a layer adds up its ranks' shares itself, once");
  });
}

TEST(LinearRefusals, AStateOfNoForward) {
  run_as_threads(1, [](Communicator& comm) {
    const LayerProblem problem(LayerKind::row, 5, comm);
    RowParallelLinear layer(problem.desc(), comm);
    LinearState state;
    EXPECT_EQ(sentence_of([&] { layer.backward(problem.backward(), &state); }),
              "RowParallelLinear: backward was given a state of no forward");
    // Nor of one that was refused.
    layer.forward(problem.forward(), &state);
    LinearForward wrong = problem.forward();
    wrong.out.cols = 3;
    EXPECT_EQ(sentence_of([&] { layer.forward(wrong, &state); }),
              "matmul_reduce_scatter: out is 5 x 3, not 5 x 160");
    EXPECT_EQ(sentence_of([&] { layer.backward(problem.backward(), &state); }),
              "RowParallelLinear: backward was given a state of no forward");
  });
}

TEST(LinearRefusals, WeightsThatDoNotFit) {
  run_as_threads(1, [](Communicator& comm) {
    const LayerProblem problem(LayerKind::column, 5, comm);
    const PackedWeight packed(problem.weight());
    const PackedWeight turned(problem.weight().turned());
    LinearDesc desc = problem.desc();
    desc.weight = Weight(packed).kind();
    desc.turned = desc.weight;
    ColumnParallelLinear layer(desc, comm);
    LinearForward forward = problem.forward();
    EXPECT_EQ(sentence_of([&] { layer.forward(forward); }),
              "ColumnParallelLinear: weight takes 96 inputs to 160 outputs and is bf16:plain, "
              "but the layer was made for one that takes 96 to 160 and is bf16");
    forward.weight = turned;
    EXPECT_EQ(sentence_of([&] { layer.forward(forward); }),
              "ColumnParallelLinear: weight takes 160 inputs to 96 outputs and is bf16, but "
              "the layer was made for one that takes 96 to 160 and is bf16");
    forward.weight = packed;
    layer.forward(forward);
    LinearBackward call = problem.backward();
    call.weight = packed;
    EXPECT_EQ(sentence_of([&] { layer.backward(call); }),
              "ColumnParallelLinear: grad_x takes a turned weight of bf16, and the call has "
              "none");
    call.turned = packed;
    EXPECT_EQ(sentence_of([&] { layer.backward(call); }),
              "ColumnParallelLinear: turned takes 96 inputs to 160 outputs and is bf16, but "
              "the layer was made for one that takes 160 to 96 and is bf16");
    call.turned = turned;
    layer.backward(call);

    // Without a kind of turned weight only a plain one can go backward.
    desc.turned = {};
    ColumnParallelLinear forward_only(desc, comm);
    EXPECT_EQ(sentence_of([&] { forward_only.backward(call); }),
              "ColumnParallelLinear: a turned weight was given to a layer made for none");
    call.turned = {};
    EXPECT_EQ(sentence_of([&] { forward_only.backward(call); }),
              "ColumnParallelLinear: grad_x takes the weight the other way round, and a packed "
              "one can't be turned: make the layer for a `turned` weight, and give it too");
    call.weight = {};
    EXPECT_EQ(sentence_of([&] { forward_only.backward(call); }),
              "ColumnParallelLinear: grad_x takes the weight, and the call has none");
    PackedWeight left = PackedWeight(problem.weight());
    const PackedWeight taken = std::move(left);
    call.weight = left;  // NOLINT(bugprone-use-after-move): that is the mistake
    EXPECT_EQ(sentence_of([&] { forward_only.backward(call); }),
              "ColumnParallelLinear: weight has been moved to another PackedWeight");
  });
}

TEST(LinearRefusals, ABackwardThatSaysTooLittle) {
  EXPECT_EQ(refused(LayerKind::column, [](auto& call) { call.x = {}; }),
            "ColumnParallelLinear: grad_weight takes x, and the call has none");
  EXPECT_EQ(refused(LayerKind::row, [](auto& call) { call.x.rows = 4; }),
            "RowParallelLinear: x is 4 x 96, not 5 x 96");
  EXPECT_EQ(refused(LayerKind::row, [](auto& call) { call.rows = 7; }),
            "RowParallelLinear: backward has rows=7 but its forward had 5");
  EXPECT_EQ(refused(LayerKind::row, [](auto& call) { call.rows = -2; }),
            "RowParallelLinear: backward has rows=-2");
  run_as_threads(2, [](Communicator& comm) {
    const LayerProblem problem(LayerKind::row, 5, comm);
    RowParallelLinear layer(problem.desc(), comm);
    LinearBackward call = {.grad_out = problem.grad_out(), .grad_bias = problem.grad_bias.view};
    EXPECT_EQ(sentence_of([&] { layer.backward(call); }),
              "RowParallelLinear: backward can't tell how many rows all ranks have "
              "together: its grad_out is a shard, and there is neither x, nor "
              "grad_x, nor rows, nor a state");
    call.rows = 5;
    layer.backward(call);
    call.rows = 9;
    EXPECT_EQ(sentence_of([&] { layer.backward(call); }),
              std::string("RowParallelLinear: grad_out is ") +
                  (comm.rank() == 0 ? "3 x 160, not 5 x 160" : "2 x 160, not 4 x 160"));
  });
}

TEST(LinearRefusals, ALayerThatWasMoved) {
  run_as_threads(1, [](Communicator& comm) {
    const LayerProblem problem(LayerKind::row, 5, comm);
    RowParallelLinear layer(problem.desc(), comm);
    const RowParallelLinear taken = std::move(layer);
    EXPECT_EQ(sentence_of([&] { layer.forward(problem.forward()); }),  // NOLINT: on purpose
              "RowParallelLinear: this layer was moved to another");
  });
}

// Ranks that make different layers all say so, in the same words, when they make them.
TEST(LinearRefusals, RanksThatDisagree) {
  run_as_threads(3, [](Communicator& comm) {
    const LayerProblem problem(LayerKind::column, 12, comm);
    const Error error = expect_error(Code::mismatch, [&] {
      const ColumnParallelLinear layer(problem.desc(), comm,
                                       {.sequence_parallel = comm.rank() != 2});
    });
    EXPECT_STREQ(error.what(),
                 "ColumnParallelLinear: rank 2 has sequence_parallel=0 and rank 0 has 1");
  });
  run_as_threads(2, [](Communicator& comm) {
    const LinearDesc desc = {
        .inputs = comm.rank() == 0 ? 16 : 24, .outputs = 8, .layout = WeightLayout::out_in};
    const Error error =
        expect_error(Code::mismatch, [&] { const ColumnParallelLinear layer(desc, comm); });
    EXPECT_STREQ(error.what(), "ColumnParallelLinear: rank 1 has inputs=24 and rank 0 has 16");
  });
  run_as_threads(2, [](Communicator& comm) {
    const Dtype dtype = comm.rank() == 0 ? Dtype::bf16 : Dtype::f32;
    const LinearDesc desc = {
        .inputs = 16, .outputs = 8, .layout = WeightLayout::out_in, .weight = {.dtype = dtype}};
    const Error error =
        expect_error(Code::mismatch, [&] { const RowParallelLinear layer(desc, comm); });
    EXPECT_STREQ(error.what(),
                 "RowParallelLinear: rank 1 has a weight of f32:plain and rank 0 of "
                 "bf16:plain");
  });
}

// Else those that have it would wait in the first backward for the one that refuses.
TEST(LinearRefusals, RanksOfWhichOneCannotTurnItsWeight) {
  run_as_threads(2, [](Communicator& comm) {
    const WeightKind packed = {.dtype = Dtype::bf16, .is_packed = true};
    LinearDesc desc = {
        .inputs = 16, .outputs = 8, .layout = WeightLayout::out_in, .weight = packed};
    if (comm.rank() == 0) desc.turned = packed;
    const Error error =
        expect_error(Code::mismatch, [&] { const RowParallelLinear layer(desc, comm); });
    EXPECT_STREQ(error.what(),
                 "RowParallelLinear: rank 1 has as turned weight: none; and rank "
                 "0: bf16");
  });
}

// In its own name, and when it is made.
TEST(LinearRefusals, WhatItsOperatorsCannotDo) {
  run_as_threads(1, [](Communicator& comm) {
    const LayerProblem problem(LayerKind::row, 5, comm);
    const auto refusal_of = [&](const OpOptions& options) {
      return sentence_of([&] { RowParallelLinear(problem.desc(), comm, {.operators = options}); });
    };
    EXPECT_EQ(refusal_of({.wire = static_cast<Dtype>(77)}),
              "RowParallelLinear: the wire is unknown; there are f32, bf16, f16 and s8");
    EXPECT_EQ(refusal_of({.threads = -3}),
              "RowParallelLinear: threads=-3 is not between 0 and 1024");
    EXPECT_EQ(refusal_of({.backend = "banana"}), "RowParallelLinear: there is no backend banana");
    EXPECT_EQ(refusal_of({.poll = [] {}}),
              "RowParallelLinear: a poll hook belongs to a single call, and is not "
              "among the options of what is prepared");
    LinearDesc desc = problem.desc();
    desc.inputs = -4;
    EXPECT_EQ(sentence_of([&] { RowParallelLinear(desc, comm); }),
              "RowParallelLinear: inputs=-4 is not between 0 and 2^42");
  });
}

}  // namespace
}  // namespace plait
