#include "measure/collective_race.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "conformance/ranks.h"

namespace plait::measure {
namespace {

TEST(CollectiveRaces, TakeTurnsInAlternatingOrderOnEveryRank) {
  run_as_threads(3, [](Communicator& comm) {
    const Effort effort = {.repetitions = 4, .each = 0, .lasting = 0};
    CollectiveRace race(comm, effort);
    std::string order;
    for (const char name : {'a', 'b'}) race.add([&order, name] { order += name; });
    race.run();
    EXPECT_TRUE(order.ends_with("abbaabba") || order.ends_with("baabbaab")) << order;
  });
}

TEST(CollectiveRaces, TakeTheTimeOfTheSlowestRank) {
  run_as_threads(2, [](Communicator& comm) {
    constexpr std::chrono::milliseconds kLate(20);
    const Effort effort = {.repetitions = 3, .each = 0, .lasting = 0};
    CollectiveRace race(comm, effort);
    race.add([&] {
      if (comm.rank() == 1) std::this_thread::sleep_for(kLate);
    });
    race.add_processor_time([&] {
      if (comm.rank() == 1) std::this_thread::sleep_for(kLate);
    });
    const std::vector<Times> times = race.run();
    ASSERT_EQ(times.size(), 2U);
    EXPECT_GE(times[0].min, std::chrono::nanoseconds(kLate).count());
    EXPECT_EQ(times[0].repetitions, 3);
    // A rank that sleeps takes no processor time.
    EXPECT_LT(times[1].min, std::chrono::nanoseconds(kLate).count());
  });
}

}  // namespace
}  // namespace plait::measure
