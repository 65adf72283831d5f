// Where processes meet: what one rank hears when another is already further.
#include "comm/shm/hub.h"

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/interruption.h"
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

// The caller's hook may throw an Error too, once, as Python's handlers of signals do.
struct Own : Error {
  explicit Own(Code code) : Error(code, "the caller's own words") {}
};

using Meeting = std::function<void(Rendezvous& hub, const Watch& watch)>;

const Meeting kMeetings[] = {
    [](Rendezvous& hub, const Watch& watch) { hub.all_gather("bytes", watch); },
    [](Rendezvous& hub, const Watch& watch) { hub.share(64, "memory", watch); },
    [](Rendezvous& hub, const Watch& watch) { hub.subgroup({1, 0}, watch); },
};

TEST(Hub, WhatTheCallersHookThrowsComesOutAsItIs) {
  for (const int interrupted : {0, 1}) {
    for (const Code code : {Code::system, Code::peer_lost}) {
      for (const Meeting& meet : kMeetings) {
        const std::string name = name_of_job(conformance::fresh_job());
        const auto seat = [](int rank) { return Seat{rank, 2, 30 * base::kSecond}; };
        std::promise<void> has_ended;
        const std::jthread other([&] {
          const auto hub = meet_at(name, seat(1 - interrupted));
          has_ended.get_future().wait();
        });
        const auto hub = meet_at(name, seat(interrupted));
        bool has_thrown = false;
        const auto hook = Interruption::counted([&] {
          if (!std::exchange(has_thrown, true)) throw Own(code);
        });
        EXPECT_THROW(meet(*hub, [&](int /*peer*/) { hook(); }), Own);
        has_ended.set_value();
      }
    }
  }
}

// Before ranks have met: rank 0 listens, or calls and is not answered yet.
TEST(Hub, WhatTheCallersHookThrowsEndsTheMeetingAsItIs) {
  for (const int rank : {0, 1}) {
    const std::string name = name_of_job(conformance::fresh_job());
    const auto hook = Interruption::counted([] { throw Own(Code::system); });
    const Watch watch = [&](int /*peer*/) { hook(); };
    EXPECT_THROW(meet_at(name, {rank, 2, 30 * base::kSecond}, watch), Own);
  }
}

}  // namespace
}  // namespace plait::comm::shm
