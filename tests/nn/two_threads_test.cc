// A layer that two threads call at once: the second is refused, and all else goes on.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "conformance/await.h"
#include "conformance/ranks.h"
#include "nn/layer.h"
#include "plait/collectives.h"

namespace plait {
namespace {

TEST(TwoThreadsOfALayer, AreToldSoAndTheGroupGoesOn) {
  std::atomic<bool> refused{false};
  std::atomic<bool> waits{false};
  thread_local bool enters_backward = false;
  // The library asks the hook only where a call waits.
  const auto tell_of_a_wait = [&waits] { waits = waits || enters_backward; };
  const auto body = [&](Communicator& comm) {
    const LayerProblem problem(LayerKind::column, 32, comm);
    ColumnParallelLinear layer(problem.desc(), comm);
    layer.forward(problem.forward());
    if (comm.rank() == 1) {
      if (!await("rank 0 refuses its second thread", [&] { return refused.load(); })) return;
      layer.backward(problem.backward());
    } else {
      const LayerProblem own(LayerKind::column, 64,
                             comm);  // larger: it would need other memory
      std::jthread other([&] {
        if (!await("rank 0 waits in backward", [&] { return waits.load(); })) return;
        const std::function<void()> calls[] = {[&] { layer.forward(own.forward()); },
                                               [&] { layer.backward(own.backward()); }};
        for (const auto& call : calls) {
          expect_error(Code::invalid_argument, "two threads use this communicator", call);
        }
        refused = true;
      });
      enters_backward = true;
      layer.backward(problem.backward());
      enters_backward = false;
    }
    barrier(comm);
  };
  run_as_threads(2, body, {.interrupted = tell_of_a_wait});
}

}  // namespace
}  // namespace plait
