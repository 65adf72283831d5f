// Who is blamed where threads of one rank wait at once.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "comm/milestones.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait {
namespace {

using conformance::expect_error;
using conformance::run_as_threads;

constexpr std::chrono::milliseconds kShort{400};

// Rank 2 waits for rank 0. One thread of rank 0 waits for rank 1, which is late, while another one
// waits for rank 3 again and again: that one's waits must not hide the first's.
TEST(Blame, FollowsTheWaitThatLasts) {
  Milestones given_up;
  const auto body = [&](Communicator& comm) {
    const MailboxDesc desc = {.slots = 1, .slot_bytes = 8};
    const auto line = comm.make_mailbox(desc);
    const auto ping = comm.make_mailbox(desc);
    const auto bounce = [&](int peer) {
      try {
        for (;;) {
          std::this_thread::sleep_for(std::chrono::milliseconds(comm.rank()));
          ping->post(peer, 0, {}, 0);
          ping->wait_arrived(peer, 0, {});
          ping->release(peer, 0);
        }
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::timeout) << error.what();
      }
    };
    barrier(comm);
    const Error error = expect_error(Code::timeout, [&] {
      if (comm.rank() == 0) {
        const std::jthread other(bounce, 3);
        std::this_thread::sleep_for(kShort / 2);
        line->wait_arrived(1, 0, {});
      }
      if (comm.rank() == 1) given_up.await(0, 3);
      if (comm.rank() == 3) bounce(0);
      line->wait_arrived(0, 0, {});
    });
    given_up.reach(0);
    EXPECT_EQ(error.culprit(), 1) << error.what();
  };
  run_as_threads(4, body, {.timeout = kShort});
}

}  // namespace
}  // namespace plait
