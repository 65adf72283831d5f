// How long a rank may poll a mailbox in vain, and which polls don't count as such.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

#include "comm/milestones.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait {
namespace {

constexpr std::chrono::milliseconds kShort{300};
constexpr MailboxDesc kOneSlot = {.slots = 1, .slot_bytes = 8};

void rest(int microseconds = 50) {
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
}

// Two ranks with a short deadline, as processes and as threads. Rank 1 does nothing in time.
void expect_timeout(const std::function<void(Mailbox&)>& poll, const std::string& sentence) {
  for (const auto& runner : {run_in_processes, run_as_threads}) {
    Milestones given_up;
    const auto body = [&](Communicator& comm) {
      const auto mailbox = comm.make_mailbox(kOneSlot);
      barrier(comm);
      if (comm.rank() == 1) given_up.await(0);
      set_timeout(comm, kShort);
      const Error error = expect_error(Code::timeout, [&] {
        if (comm.rank() == 1) barrier(comm);
        poll(*mailbox);
      });
      given_up.reach(0);
      EXPECT_EQ(error.culprit(), 1) << error.what();
      EXPECT_TRUE(contains(error.what(), sentence)) << error.what();
    };
    runner(2, body, {});
  }
}

TEST(PollingAMailbox, EndsAtTheDeadline) {
  const Tag tag = {.operation = Operation::all_gather, .chunk = 70000};
  expect_timeout(
      [&](Mailbox& mailbox) {
        while (!mailbox.arrived(1, 0, tag)) mailbox.progress();
      },
      "all_gather: rank 0 waits for chunk 70000 from rank 1 for 300 ms");
}

TEST(PollingAMailbox, EndsAtTheDeadlineForRoomToo) {
  expect_timeout(
      [](Mailbox& mailbox) {
        for (;;) {
          if (mailbox.vacant(1, 0)) mailbox.post(1, 0, {}, 0);
          rest();
          mailbox.progress();
        }
      },
      "outbox: rank 0 waits for rank 1 to release a chunk for 300 ms");
}

// Progress restarts the deadline, and time without a poll does not count as waiting.
TEST(PollingAMailbox, TakesItsTime) {
  const auto body = [](Communicator& comm) {
    const auto mailbox = comm.make_mailbox(kOneSlot);
    barrier(comm);
    constexpr std::chrono::milliseconds kDeadline{1500};  // a busy machine may be late
    if (comm.rank() == 1) {
      for (std::uint32_t chunk = 0; chunk < 5; ++chunk) {
        std::this_thread::sleep_for(kDeadline / 4);
        mailbox->post(0, 0, {.chunk = chunk}, 0);
      }
      return barrier(comm);
    }
    set_timeout(comm, kDeadline);
    for (std::uint32_t chunk = 0; chunk < 5; ++chunk) {
      while (!mailbox->arrived(1, 0, {.chunk = chunk})) {
        rest();
        mailbox->progress();
      }
      mailbox->release(1, 0);
    }
    EXPECT_FALSE(mailbox->arrived(1, 0, {}));
    const auto end = std::chrono::steady_clock::now() + kDeadline * 5 / 4;
    while (std::chrono::steady_clock::now() < end) {
      rest();
      mailbox->progress();
    }
    barrier(comm);
  };
  run_in_processes(2, body);
  run_as_threads(2, body);
}

}  // namespace
}  // namespace plait
