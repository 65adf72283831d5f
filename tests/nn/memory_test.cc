// Memory of layers, and the savings and costs of keeping a gathered x.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/sanitized.h"
#include "conformance/ranks.h"
#include "nn/layer.h"
#include "plait/trace.h"
#include "tensor/compare.h"

namespace plait {
namespace {

constexpr std::int64_t kTokens = 64;
constexpr std::size_t kGathered = kTokens * LayerProblem::kInputs * 2;  // bf16

struct Cost {
  std::size_t state;
  std::size_t workspace;
  int gathers;  // in backward, besides those of operators
};

int count(const std::string& text, const std::string& word) {
  int found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    ++found;
  return found;
}

int gathers_in(const Trace& trace) {
  const std::string path = testing::TempDir() + "plait_gathers_" + std::to_string(getpid());
  trace.write_json(path);
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  std::remove(path.c_str());
  return count(text.str(), "\"all_gather\"") / 2;  // each begins and ends
}

Cost cost_of(bool recompute) {
  Cost cost = {};
  const ThreadGroup group(2);
  std::vector<std::thread> ranks;
  ranks.reserve(2);
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&group, &cost, rank, recompute] {
      Trace trace(rank);
      CommunicatorOptions options;
      options.trace = &trace;
      Communicator comm = group.join(rank, options);
      const LayerProblem problem(LayerKind::column, kTokens, comm);
      ColumnParallelLinear layer(problem.desc(), comm,
                                 {.recompute_all_gather = recompute, .operators = {.threads = 1}});
      LinearState state;
      layer.forward(problem.forward(), &state);
      const int before = gathers_in(trace);
      layer.backward(problem.backward(), &state);
      if (rank == 0)
        cost = {.state = state.held_bytes(),
                .workspace = linear_memory(comm).workspace,
                .gathers = gathers_in(trace) - before};
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return cost;
}

// Gathered again, x costs a collective in each backward; kept, exactly its own memory.
TEST(LinearMemory, AKeptGatherSavesTheSecondAndCostsOneX) {
  const Cost again = cost_of(true);
  const Cost kept = cost_of(false);
  EXPECT_EQ(again.gathers, 1);
  EXPECT_EQ(kept.gathers, 0);
  EXPECT_EQ(again.state, 0U);
  EXPECT_EQ(kept.state, kGathered);
  EXPECT_EQ(again.workspace - kept.workspace, kGathered);  // of all layers together
}

// Rows of 200 bytes lie 256 apart, those of a page have no gaps, and no bit changes.
TEST(LinearMemory, AlignedRowsHaveGapsAndTheSameBits) {
  for (const auto& sizes : {std::pair{50, 64}, std::pair{1024, 1024}}) {
    run_as_threads(2, [&sizes](Communicator& comm) {
      const auto [inputs, stride] = sizes;
      constexpr std::int64_t kRows = 6;
      constexpr std::int64_t kOutputs = 40;
      const Matrix w(Dtype::f32, kOutputs, inputs, 1);
      const Matrix x(Dtype::f32, kRows / 2, inputs, 2);
      const Matrix grad_out(Dtype::f32, kRows, kOutputs, 3);
      const Matrix turned(Dtype::f32, inputs, kOutputs, 4);
      const Matrix narrow(Dtype::f32, kRows, kOutputs, 5);
      std::vector<Matrix> gradients;
      for (const bool aligned : {true, false}) {
        const LinearOptions options = {
            .recompute_all_gather = false, .aligned_packing = aligned, .operators = {.threads = 1}};
        // Two layers that gather rows of `inputs`: x forward, and grad_out backward.
        const WeightView own = {.view = w.view, .layout = WeightLayout::out_in};
        ColumnParallelLinear column({.inputs = inputs,
                                     .outputs = kOutputs,
                                     .layout = own.layout,
                                     .weight = {.dtype = Dtype::f32}},
                                    comm, options);
        const Matrix out(Dtype::f32, kRows, kOutputs);
        gradients.emplace_back(Dtype::f32, kOutputs, inputs);
        LinearState state;
        column.forward({.x = x.view, .weight = own, .out = out.view}, &state);
        EXPECT_EQ(state.held_bytes(), kRows * (aligned ? stride : inputs) * sizeof(float));
        column.backward(
            {.x = x.view, .grad_out = grad_out.view, .grad_weight = gradients.back().view}, &state);
        const WeightView other = {.view = turned.view, .layout = WeightLayout::out_in};
        RowParallelLinear row({.inputs = kOutputs,
                               .outputs = inputs,
                               .layout = other.layout,
                               .weight = {.dtype = Dtype::f32}},
                              comm, options);
        const Matrix row_out(Dtype::f32, kRows / 2, inputs);
        const Matrix grad_x(Dtype::f32, kRows, kOutputs);
        gradients.emplace_back(Dtype::f32, inputs, kOutputs);
        row.forward({.x = narrow.view, .weight = other, .out = row_out.view}, &state);
        row.backward({.x = narrow.view,
                      .weight = other,
                      .grad_out = x.view,
                      .grad_x = grad_x.view,
                      .grad_weight = gradients.back().view},
                     &state);
      }
      EXPECT_TRUE(tensor::same_bits(gradients[0].view, gradients[2].view));
      EXPECT_TRUE(tensor::same_bits(gradients[1].view, gradients[3].view));
    });
  }
}

TEST(LinearMemory, ManyLayersHoldWhatOneHolds) {
  run_as_threads(2, [](Communicator& comm) {
    std::vector<std::unique_ptr<LayerProblem>> problems;
    std::vector<ColumnParallelLinear> layers;
    std::vector<LinearState> states(5);
    std::vector<LinearMemory> held;
    for (int i = 0; i < 5; ++i) {
      problems.push_back(std::make_unique<LayerProblem>(LayerKind::column, kTokens, comm));
      // With two threads it depends on chance how many come to work, and what they need.
      layers.emplace_back(problems.back()->desc(), comm,
                          LinearOptions{.operators = {.threads = 1}});
      layers.back().forward(problems.back()->forward(), &states[i]);
      layers.back().backward(problems.back()->backward(), &states[i]);
      held.push_back(linear_memory(comm));
    }
    EXPECT_EQ(held.front().mailboxes, held.back().mailboxes);
    EXPECT_EQ(held.front().operators, held.back().operators);
    EXPECT_EQ(held.front().workspace, held.back().workspace);
    EXPECT_GE(held.front().workspace, kGathered);
  });
}

// A step of a layer with as many inputs as outputs.
void run_square(LayerKind kind, std::int64_t width, Communicator& comm) {
  constexpr std::int64_t kRows = 48;
  const bool row = kind == LayerKind::row;
  const std::int64_t own = width / comm.world();
  const std::int64_t own_rows = kRows / comm.world();
  const Matrix w(Dtype::bf16, row ? width : own, row ? own : width, 1);
  const Matrix x(Dtype::bf16, row ? kRows : own_rows, w.view.cols, 2);
  const Matrix out(Dtype::bf16, row ? own_rows : kRows, w.view.rows, 3);
  const Matrix grad_x(Dtype::bf16, x.view.rows, x.view.cols);
  const Matrix grad_weight(Dtype::f32, w.view.rows, w.view.cols);
  const WeightView weight = {.view = w.view, .layout = WeightLayout::out_in};
  const LinearDesc desc = {.inputs = w.view.cols, .outputs = w.view.rows, .layout = weight.layout};
  const auto run = [&](auto layer) {
    LinearState state;
    layer.forward({.x = x.view, .weight = weight, .out = out.view}, &state);
    layer.backward({.x = x.view,
                    .weight = weight,
                    .grad_out = out.view,
                    .grad_x = grad_x.view,
                    .grad_weight = grad_weight.view},
                   &state);
  };
  if (row) {
    run(RowParallelLinear(desc, comm));
  } else {
    run(ColumnParallelLinear(desc, comm));
  }
}

std::size_t mailboxes_of(LayerKind kind, const std::vector<std::int64_t>& widths) {
  std::size_t mailboxes = 0;
  run_as_threads(2, [&](Communicator& comm) {
    for (const std::int64_t width : widths) run_square(kind, width, comm);
    if (comm.rank() == 0) mailboxes = linear_memory(comm).mailboxes;
  });
  return mailboxes;
}

// Their sizes are powers of two: all smaller ones together are no larger than the largest.
TEST(LinearMemory, MailboxesOfManyWidthsAreAtMostTwiceThoseOfTheLargest) {
  std::vector<std::int64_t> widths;
  // Products of the larger widths take many times longer with a sanitizer.
  constexpr std::int64_t kStep = kIsSanitized ? 32 : 160;
  for (std::int64_t width = 128; widths.size() < 12; width += kStep) widths.push_back(width);
  for (const LayerKind kind : {LayerKind::column, LayerKind::row}) {
    const std::size_t largest = mailboxes_of(kind, {widths.back()});
    EXPECT_GT(mailboxes_of(kind, widths), largest);
    EXPECT_LE(mailboxes_of(kind, widths), 2 * largest);
    EXPECT_LE(mailboxes_of(kind, {widths.rbegin(), widths.rend()}), 2 * largest);
  }
}

// A gather that goes on beside an operator has mailboxes of its own.
TEST(LinearMemory, CountsTheMailboxesOfAGatherBesideAnOperator) {
  run_as_threads(2, [](Communicator& comm) {
    const LayerProblem problem(LayerKind::column, kTokens, comm);
    ColumnParallelLinear layer(problem.desc(), comm, {.column_backward = true});
    LinearState state;
    layer.forward(problem.forward(), &state);
    EXPECT_EQ(linear_memory(comm).mailboxes, comm.mailbox_bytes());
    layer.backward(problem.backward(), &state);
    EXPECT_GT(linear_memory(comm).mailboxes, comm.mailbox_bytes());
  });
}

}  // namespace
}  // namespace plait
