// A layer that two threads call at once: the second is refused, and all else goes on.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "conformance/ranks.h"
#include "nn/layer.h"
#include "plait/collectives.h"

namespace plait {
namespace {

using conformance::contains;
using conformance::expect_error;
using conformance::run_as_threads;

TEST(TwoThreadsOfALayer, AreToldSoAndTheGroupGoesOn) {
  std::atomic<bool> refused{false};
  run_as_threads(2, [&](Communicator& comm) {
    const LayerProblem problem(LayerKind::column, 32, comm);
    ColumnParallelLinear layer(problem.desc(), comm);
    layer.forward(problem.forward());
    if (comm.rank() == 1) {
      while (!refused) std::this_thread::yield();
      layer.backward(problem.backward());
    } else {
      const LayerProblem own(LayerKind::column, 64,
                             comm);  // larger: it would need other memory
      std::jthread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        const std::function<void()> calls[] = {[&] { layer.forward(own.forward()); },
                                               [&] { layer.backward(own.backward()); }};
        for (const auto& call : calls) {
          const Error error = expect_error(Code::invalid_argument, call);
          EXPECT_TRUE(contains(error.what(), "two threads use this communicator")) << error.what();
        }
        refused = true;
      });
      layer.backward(problem.backward());
    }
    barrier(comm);
  });
}

}  // namespace
}  // namespace plait
