// Emulated links slower than the deadline: a rank whose chunks are on their way is not late.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait {
namespace {

// Both ranks may lose their processors for as long as the deadline.
constexpr std::chrono::milliseconds kDeadline{600};
constexpr std::chrono::milliseconds kLatency{700};

void run_linked(const std::function<void(Communicator&)>& body) {
  const Link link = {.bytes_per_second = 1e12,
                     .latency_ns = std::chrono::nanoseconds(kLatency).count()};
  const auto linked = [&](Communicator& comm) {
    set_timeout(comm, kDeadline);
    body(comm);
  };
  EXPECT_NO_THROW(run_in_threads(2, linked, {.link = link}));
}

// More chunks than there is room for: the root waits for peers who can't have them yet.
constexpr std::size_t kManyChunks = 200000;

TEST(SlowLink, IsNoReasonToGiveUpAWait) {
  run_linked([](Communicator& comm) {
    EXPECT_EQ(sum_of_ones(comm), 2);
    std::vector<float> data(kManyChunks, comm.rank() == 0 ? 3.0F : 0.0F);
    broadcast({data.data(), data.size()}, 0, comm);
    EXPECT_EQ(data, std::vector<float>(kManyChunks, 3.0F));
  });
}

TEST(SlowLink, IsNoReasonToGiveUpPolling) {
  run_linked([](Communicator& comm) {
    std::vector<float> data(kManyChunks, comm.rank() == 0 ? 3.0F : 0.0F);
    Pending pending = start_broadcast({data.data(), data.size()}, 0, comm);
    while (!pending.done()) std::this_thread::yield();
    EXPECT_EQ(data, std::vector<float>(kManyChunks, 3.0F));
  });
}

TEST(SlowLink, IsNoReasonToGiveUpAMailbox) {
  run_linked([](Communicator& comm) {
    const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = 64});
    const int peer = 1 - comm.rank();
    for (std::uint32_t chunk = 0; chunk < 4; ++chunk) {
      if (comm.rank() == 0) {
        mailbox->outbox(peer, 0);
        mailbox->post(peer, 0, {.chunk = chunk}, 1);
      } else {
        mailbox->wait_arrived(peer, 0, {.chunk = chunk});
        mailbox->release(peer, 0);
      }
    }
  });
}

// The peer is there but never does its part: patience begins when its chunk should have come.
TEST(SlowLink, DoesNotHideWhoIsLate) {
  const Link link = {.bytes_per_second = 1e12, .latency_ns = 1000};
  const auto body = [](Communicator& comm) {
    const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = 64});
    set_timeout(comm, kDeadline);
    if (comm.rank() == 1) mailbox->wait_arrived(1, 0, {});
    for (;;) mailbox->post(1, 0, {}, 0);
  };
  try {
    run_in_threads(2, body, {.link = link});
    ADD_FAILURE() << "no timeout was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::timeout) << error.what();
    EXPECT_EQ(error.culprit(), 1) << error.what();
  }
}

TEST(WithLink, IsAGroupOfItsOwnOverThatLink) {
  run_in_threads(2, [](Communicator& comm) {
    EXPECT_FALSE(comm.link());
    const Link link = {.bytes_per_second = 1e9,
                       .latency_ns = std::chrono::nanoseconds(kDeadline).count()};
    Communicator linked = comm.with_link(link);
    EXPECT_EQ(linked.link(), link);
    EXPECT_EQ(linked.rank(), comm.rank());
    const auto begin = std::chrono::steady_clock::now();
    barrier(comm);  // no rank sends before all have read the clock
    barrier(linked);
    EXPECT_GE(std::chrono::steady_clock::now() - begin, kDeadline);
    Communicator without = linked.with_link(std::nullopt);
    EXPECT_FALSE(without.link());
    EXPECT_FALSE(comm.link());
    barrier(without);
  });
}

}  // namespace
}  // namespace plait
