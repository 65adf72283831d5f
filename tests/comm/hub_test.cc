// Where processes meet: what one rank hears when another is already further.
#include "comm/shm/hub.h"

#include <gtest/gtest.h>

#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/ranks.h"
#include "plait/error.h"

namespace plait::comm::shm {
namespace {

// Rank 0 may have gone on, and the group have ended, before rank 1 reads that all have come.
TEST(Hub, AMeetingThatAllCameToIsNotRefused) {
  const std::string name = name_of_job(conformance::fresh_job());
  const auto seat = [](int rank) { return Seat{rank, 2, 30 * base::kSecond}; };
  std::promise<void> one_waits;
  std::promise<void> zero_is_done;
  const std::jthread zero([&] {
    const auto hub = meet_at(name, seat(0));
    one_waits.get_future().wait();
    hub->all_gather("early", {});
    zero_is_done.set_value();
  });
  const auto hub = meet_at(name, seat(1));
  bool looked = false;
  const auto all = hub->all_gather("late", [&](int peer) {
    if (!std::exchange(looked, true)) {
      one_waits.set_value();
      zero_is_done.get_future().wait();
    }
    throw Error(Code::mismatch, "the next call went wrong", peer);
  });
  EXPECT_EQ(all, (std::vector<std::string>{"early", "late"}));
}

}  // namespace
}  // namespace plait::comm::shm
