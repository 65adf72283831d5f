// The calls that a layer refuses, in one sentence each, and the errors of ranks that disagree.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <limits>
#include <string>

#include "experts/batch.h"
#include "plait/collectives.h"

namespace plait {
namespace {

const ExpertsDesc kRefusing = {.hidden = 32, .inner = 16, .experts = 5, .top = 2};

std::string refusal_of(const std::function<void(ExpertsDesc&, ExpertsOptions&)>& change) {
  std::string said;
  run_in_threads(1, [&](Communicator& comm) {
    ExpertsDesc desc = kRefusing;
    ExpertsOptions options;
    change(desc, options);
    said = expect_error(Code::invalid_argument, [&] {
             const ExpertParallelMLP layer(desc, comm, options);
           }).what();
  });
  return said;
}

TEST(ExpertsRefuse, DescriptionsThatNoLayerCanHave) {
  using Desc = ExpertsDesc;
  using Options = ExpertsOptions;
  EXPECT_EQ(refusal_of([](Desc& desc, Options&) { desc.hidden = 0; }),
            "expert_parallel_mlp: hidden is 0; it can be 1 to 16777216");
  EXPECT_EQ(refusal_of([](Desc& desc, Options&) { desc.experts = 4097; }),
            "expert_parallel_mlp: experts is 4097; it can be 1 to 4096");
  EXPECT_EQ(refusal_of([](Desc& desc, Options&) { desc.top = 65; }),
            "expert_parallel_mlp: top is 65; it can be 1 to 64");
  EXPECT_EQ(refusal_of([](Desc& desc, Options&) { desc.wire = Dtype::s8; }),
            "expert_parallel_mlp: wire is s8; it can be f32, bf16 or f16");
  EXPECT_EQ(refusal_of([](Desc& desc, Options&) { desc.ranks = {0, 0, 0, 0, 1}; }),
            "expert_parallel_mlp: expert 4 is on rank 1 of 1");
  EXPECT_EQ(refusal_of([](Desc& desc, Options&) { desc.ranks = {0}; }),
            "expert_parallel_mlp: 1 ranks are given for 5 experts");
  EXPECT_EQ(refusal_of([](Desc& desc, Options&) { desc.parts = 17; }),
            "expert_parallel_mlp: parts is 17; it can be 1 to 16");
  EXPECT_EQ(refusal_of([](Desc& desc, Options&) { desc.experts = 2049, desc.parts = 2; }),
            "expert_parallel_mlp: 2049 experts in 2 parts are 4098; there can be 4096");
  EXPECT_EQ(refusal_of([](Desc& desc, Options&) { desc.ranks = {0}, desc.parts = 2; }),
            "expert_parallel_mlp: 1 ranks are given for 10 parts");
  EXPECT_EQ(
      refusal_of([](Desc& desc, Options&) { desc.limit = -1; }),
      "expert_parallel_mlp: alpha is 1, added 0 and limit -1; alpha and added must be finite, "
      "and limit above 0");
  EXPECT_EQ(refusal_of([](Desc&, Options& options) { options.schedule = Schedule::pipelined; }),
            "expert_parallel_mlp: there is no pipelined schedule; it can be serial or fused");
}

// Each is refused before anything is written, and the layer can be used afterwards.
TEST(ExpertsRefuse, CallsThatDoNotFit) {
  const Experts experts(kRefusing, Dtype::bf16, "", true);
  run_in_threads(2, [&](Communicator& comm) {
    const Batch batch(experts.desc, {4, 4});
    ExpertParallelMLP layer(experts.desc, comm);
    const int rank = comm.rank();
    RankCall mine(experts, batch, batch.first_row(rank), 4, layer.experts_of(rank));
    const std::string who = "expert_parallel_mlp: rank " + std::to_string(rank);
    const auto refusal = [&](const std::function<void(ExpertsForward&)>& change) {
      ExpertsForward call = mine.call();
      change(call);
      return std::string(expect_error(Code::invalid_argument, [&] { layer.forward(call); }).what());
    };
    std::vector<std::int64_t> ids(mine.ids.begin(), mine.ids.end());
    ids[5] = 5;
    EXPECT_EQ(refusal([&](ExpertsForward& call) { call.ids = ids; }),
              who + "'s row 2 has the expert 5 in slot 1; it can be -1, or 0 to 4");
    ids[5] = -2;
    EXPECT_EQ(refusal([&](ExpertsForward& call) { call.ids = ids; }),
              who + "'s row 2 has the expert -2 in slot 1; it can be -1, or 0 to 4");
    EXPECT_EQ(refusal([&](ExpertsForward& call) { call.ids = call.ids.first(7); }),
              who + " gives 7 ids and 8 weights for 4 rows of 2 slots");
    const std::string own = rank == 0 ? "3" : "2";
    EXPECT_EQ(refusal([&](ExpertsForward& call) { call.up = call.up.first(1); }),
              who + " gives 1 weights `up` for its " + own + " experts");
    EXPECT_EQ(refusal([&](ExpertsForward& call) { call.down = call.up; }),
              who + "'s weight `down` 0 has 32 inputs and 32 outputs; it needs 16 and 32");
    EXPECT_EQ(refusal([&](ExpertsForward& call) { call.down_biases = call.down_biases.first(1); }),
              who + " gives 1 biases of `down` for its " + own + " experts");
    EXPECT_EQ(refusal([&](ExpertsForward& call) { call.x = call.x.column_range(0, 31); }),
              who + "'s x has 31 columns; it must have 32");
    EXPECT_EQ(refusal([&](ExpertsForward& call) { call.out = call.out.row_range(0, 3); }),
              "expert_parallel_mlp: x is 4 x 32 and out 3 x 32");
    EXPECT_EQ(refusal([&](ExpertsForward& call) { call.x.dtype = Dtype::f16; }),
              who + "'s x is f16 but the layer was made for bf16");
    EXPECT_EQ(refusal([&](ExpertsForward& call) { call.x = call.out; }),
              "expert_parallel_mlp: out overlaps x");
    std::vector<Weight> up = mine.up;
    WeightView nowhere = up[0].view();
    nowhere.view.data = nullptr;
    up[0] = nowhere;
    EXPECT_EQ(refusal([&](ExpertsForward& call) { call.up = up; }),
              "expert_parallel_mlp: the weight `up` 0 is 32 x 32 but its data is null");
    std::vector<ConstTensorView> biases = mine.down_biases;
    biases[1] = biases[1].column_range(0, 31);
    EXPECT_EQ(refusal([&](ExpertsForward& call) { call.down_biases = biases; }),
              "expert_parallel_mlp: the bias of `down` 1 is 1 x 31 f32; it must be 1 x 32");
    EXPECT_EQ(refusal([&](ExpertsForward& call) { call.x.rows = std::int64_t{1} << 30; }),
              who + "'s x has 1073741824 rows; it can have 1073741823");
    for (const std::byte byte : mine.out) ASSERT_EQ(byte, std::byte{0xee});
    layer.forward(mine.call());
    ExpertParallelMLP other(std::move(layer));
    expect_error(Code::invalid_argument, [&] { layer.forward(mine.call()); });  // NOLINT: moved
    other.forward(mine.call());
  });
}

enum class Odd { hidden, inner, parts, placement, schedule, wire, skips, batch, ids, gradients };

// One rank makes another call than the others.
void expect_mismatch(Odd odd, const std::string& field) {
  const bool replicated = odd == Odd::batch || odd == Odd::ids;
  run_in_threads(3, [&](Communicator& comm) {
    const bool is_odd = comm.rank() == 2;
    ExpertsDesc desc = kRefusing;
    ExpertsOptions options = {.replicated = replicated};
    if (is_odd && odd == Odd::hidden) desc.hidden = 33;
    if (is_odd && odd == Odd::inner) desc.inner = 17;
    if (is_odd && odd == Odd::parts) desc.parts = 2;
    if (is_odd && odd == Odd::placement) desc.ranks = {0, 1, 2, 1, 0};
    if (is_odd && odd == Odd::schedule) options.schedule = Schedule::serial;
    if (is_odd && odd == Odd::wire) desc.wire = Dtype::bf16;
    const Experts experts(desc, Dtype::bf16, "", false);
    Batch batch(experts.desc, {is_odd && odd == Odd::batch ? 7 : 6});
    if (is_odd && odd == Odd::ids) batch.ids[0] = batch.ids[0] == 4 ? 3 : 4;
    try {
      ExpertParallelMLP layer(experts.desc, comm, options);
      RankCall mine(experts, batch, 0, batch.rows(), layer.experts_of(comm.rank()));
      for (;;) {  // a rank that is done early gets the error in a later call
        if (is_odd && odd == Odd::skips) barrier(comm);
        ExpertsForward call = mine.call();
        call.gradients = is_odd && odd == Odd::gradients;
        layer.forward(call);
      }
    } catch (const Error& error) {
      const std::string said = error.what();
      EXPECT_EQ(error.code(), Code::mismatch) << said;
      EXPECT_TRUE(contains(said, "rank 2")) << said;
      EXPECT_TRUE(contains(said, field)) << said;
    }
  });
}

TEST(ExpertsRefuse, RanksThatDisagree) {
  expect_mismatch(Odd::hidden, "columns: ");
  expect_mismatch(Odd::inner, "the layer");
  expect_mismatch(Odd::parts, "the layer");
  expect_mismatch(Odd::placement, "the layer");
  expect_mismatch(Odd::schedule, "the layer");
  expect_mismatch(Odd::wire, "the wire: ");
  expect_mismatch(Odd::skips, "the operator: ");
  expect_mismatch(Odd::batch, "rows: ");
  expect_mismatch(Odd::gradients, "the call: forward with");
  expect_mismatch(Odd::ids, "the fingerprint of ids and weights: ");
}

// Work beside a call meets what the call meets, which is not an error of the caller's code.
TEST(ExpertsRefuse, RanksThatDisagreeWhileTheyWorkBesideIt) {
  const Experts experts(kRefusing, Dtype::bf16, "", false);
  std::array<std::string, 2> said;
  run_in_threads(2, [&](Communicator& comm) {
    const Batch batch(experts.desc, {4, 4});
    ExpertParallelMLP layer(experts.desc, comm);
    const int rank = comm.rank();
    RankCall mine(experts, batch, batch.first_row(rank), 4, layer.experts_of(rank));
    ExpertsForward call = mine.call();
    call.gradients = rank == 1;
    call.beside = [](const std::function<void()>& poll_step) {
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (std::chrono::steady_clock::now() < deadline) poll_step();
    };
    said.at(static_cast<std::size_t>(rank)) =
        expect_error(Code::mismatch, [&] { layer.forward(call); }).what();
  });
  EXPECT_EQ(said[0], said[1]);
  EXPECT_TRUE(said[0].starts_with("expert_parallel_mlp: rank ")) << said[0];
}

TEST(ExpertsRefuse, CallsWithinAnother) {
  const Experts experts(kRefusing, Dtype::bf16, "", false);
  run_in_threads(2, [&](Communicator& comm) {
    const Batch batch(experts.desc, {40, 40});
    ExpertParallelMLP layer(experts.desc, comm);
    RankCall mine(experts, batch, batch.first_row(comm.rank()), 40, layer.experts_of(comm.rank()));
    int polls = 0;
    const std::function<void()> poll = [&] {
      if (++polls > 1) return;
      const Error error = expect_error(Code::invalid_argument, [&] { layer.forward(mine.call()); });
      EXPECT_TRUE(contains(error.what(), "called from the poll hook")) << error.what();
    };
    ExpertsForward call = mine.call();
    call.poll = poll;
    layer.forward(call);
    EXPECT_GT(polls, 0);
  });
}

// An exception of the caller's code leaves as it is, and the other ranks are told.
void expect_thrown_as_it_is(const std::function<void(ExpertsForward&)>& add_code) {
  const Experts experts(kRefusing, Dtype::bf16, "", false);
  run_in_threads(2, [&](Communicator& comm) {
    const Batch batch(experts.desc, {4, 4});
    ExpertParallelMLP layer(experts.desc, comm);
    RankCall mine(experts, batch, batch.first_row(comm.rank()), 4, layer.experts_of(comm.rank()));
    ExpertsForward call = mine.call();
    if (comm.rank() == 1) {
      add_code(call);
      EXPECT_THROW(layer.forward(call), std::runtime_error);
      return;
    }
    try {
      for (;;) layer.forward(call);
    } catch (const Error& error) {
      EXPECT_TRUE(contains(error.what(), "rank 1")) << error.what();
    }
  });
}

TEST(ExpertsRefuse, ToGoOnWhenTheHookThrows) {
  expect_thrown_as_it_is(
      [](ExpertsForward& call) { call.poll = [] { throw std::runtime_error("enough"); }; });
}

TEST(ExpertsRefuse, ToGoOnWhenTheWorkBesideThrows) {
  expect_thrown_as_it_is([](ExpertsForward& call) {
    call.beside = [](const auto& /*poll_step*/) { throw std::runtime_error("enough"); };
  });
}

}  // namespace
}  // namespace plait
