// Which executor a group has. What one does is in simulation_test.cc and timed_product_test.cc.
#include "comm/core/executor.h"

#include <gtest/gtest.h>

#include <string_view>

#include "comm/core/timed_product.h"
#include "comm/flow/lanes.h"
#include "comm/session/state.h"

namespace plait::comm {
namespace {

// Takes the memory work of a label alone.
class TakesSums final : public Executor {
 public:
  bool run(const MemoryWork& work) override { return std::string_view(work.label.text()) == "sum"; }
};

TEST(Executor, OfAGroupIsTheProcessorUntilAnotherIsSet) {
  run_in_threads(1, [](Communicator& comm) {
    Group& group = comm.state().group();
    EXPECT_EQ(group.executor(), nullptr);
    TakesSums first;
    TimedProduct second(0);
    {
      const ScopedExecutor outer(group, first);
      EXPECT_EQ(product_executor(group), nullptr) << "its products are multiplied";
      {
        const ScopedExecutor inner(group, second);
        EXPECT_EQ(product_executor(group), &second);
      }
      EXPECT_EQ(group.executor(), &first);
    }
    EXPECT_EQ(group.executor(), nullptr);
  });
}

TEST(Executor, DoesMemoryWorkThatItTakesAndNoOther) {
  run_in_threads(1, [](Communicator& comm) {
    const Lanes& lanes = comm.state().lanes();
    int described = 0;
    const auto is_done = [&](Label label) {
      bool done = false;
      lanes.run(
          [&] {
            ++described;
            return MemoryWork{.label = label, .read = 8, .written = 8};
          },
          [&] { done = true; });
      return done;
    };
    EXPECT_TRUE(is_done("sum"));
    EXPECT_EQ(described, 0) << "nothing is described to a processor";
    TakesSums sums;
    const ScopedExecutor scoped(comm.state().group(), sums);
    EXPECT_FALSE(is_done("sum"));
    EXPECT_TRUE(is_done("copy"));
    EXPECT_EQ(described, 2);
  });
}

// Calls of a group with an executor that takes nothing go as those of a group without.
TEST(Executor, LeavesWaitsAndPollsToTheProcessor) {
  run_in_threads(2, [](Communicator& comm) {
    Executor none;
    const ScopedExecutor scoped(comm.state().group(), none);
    const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = 8});
    const int peer = 1 - comm.rank();
    if (comm.rank() == 1) base::sleep_until(base::now() + 20 * base::kMillisecond);
    mailbox->post(peer, 0, {}, 8);
    mailbox->progress();
    mailbox->wait_arrived(peer, 0, {});
    mailbox->release(peer, 0);
  });
}

}  // namespace
}  // namespace plait::comm
