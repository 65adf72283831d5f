// An exception of a caller's hook comes out of a layer as it was thrown, soon, and the other ranks
// are told.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "comm/prompt.h"
#include "conformance/await.h"
#include "conformance/ranks.h"
#include "nn/layer.h"
#include "plait/error.h"

namespace plait {
namespace {

// No std::exception: what is thrown is the caller's own affair.
struct Stopped {};

struct Scene {
  const char* name;
  LayerKind kind;
  bool is_forward;
  LinearOptions options;
};

void PrintTo(const Scene& scene, std::ostream* out) { *out << scene.name; }  // NOLINT: gtest's name

class EveryInterruptedStep : public testing::TestWithParam<Scene> {
 protected:
  using Call = std::function<void()>;
  using Rank = std::function<void(Communicator& comm, const Call& call)>;

  // Makes the layer, does one step with the other rank, and hands over the call to interrupt.
  static void run(Communicator& comm, const Rank& rank) {
    const Scene& scene = GetParam();
    const LayerProblem problem(scene.kind, 300, comm, scene.options.sequence_parallel);
    with_layer(scene.kind, problem.desc(), comm, scene.options, [&](auto layer) {
      LinearState state;
      layer.forward(problem.forward(), &state);
      layer.backward(problem.backward(), &state);
      rank(comm, [&] {
        if (scene.is_forward) return layer.forward(problem.forward(), nullptr);
        layer.backward(problem.backward(), &state);
      });
    });
  }
};

INSTANTIATE_TEST_SUITE_P(
    Nn, EveryInterruptedStep,
    testing::Values(
        Scene{"ColumnForward", LayerKind::column, true, {}},
        Scene{"ColumnBackward", LayerKind::column, false, {}},
        Scene{"ColumnBackwardWithOperator", LayerKind::column, false, {.column_backward = true}},
        Scene{"ColumnBackwardWithAllRows", LayerKind::column, false, {.sequence_parallel = false}},
        Scene{"ColumnBackwardWithAllRowsAndOperator",
              LayerKind::column,
              false,
              {.sequence_parallel = false, .column_backward = true}},
        Scene{"RowForward", LayerKind::row, true, {}},
        Scene{"RowForwardWithAllRows", LayerKind::row, true, {.sequence_parallel = false}},
        Scene{"RowBackward", LayerKind::row, false, {}}),
    [](const auto& one) { return std::string(one.param.name); });

// A layer may wait in two communicators, whose waits ask in turn: each of the first questions is
// once the one that ends the call.
TEST_P(EveryInterruptedStep, EndsByWhatTheHookThrows) {
  for (int question = 1; question <= 4; ++question) {
    SCOPED_TRACE(question);
    Prompt prompt;
    prompt.expect([&] {
      std::atomic<int> left{0};  // questions until the hook throws; 0: it doesn't
      std::atomic<bool> is_through{false};
      std::atomic<bool> has_ended{false};
      const ThreadGroup group(2);
      const std::jthread other([&] {
        Communicator comm = group.join(1);
        run(comm, [&](Communicator& /*comm*/, const Call& call) {
          is_through = true;
          if (!await("rank 0 ends", [&] { return has_ended.load(); })) return;
          expect_error(Code::peer_lost, 0, "rank 0 was interrupted", call);
        });
      });
      const auto hook = [&] {
        if (left == 0) return;
        --left;
        if (left == 0) throw Stopped{};
      };
      Communicator comm = group.join(0, {.interrupted = hook});
      run(comm, [&](Communicator& /*comm*/, const Call& call) {
        if (!await("rank 1 is through", [&] { return is_through.load(); })) return;
        left = question;
        const auto begin = Clock::now();
        EXPECT_THROW(call(), Stopped);
        prompt.took(Clock::now() - begin);
        has_ended = true;
      });
    });
  }
}

}  // namespace
}  // namespace plait
