// Groups that share one MPI: messages of many groups and mailboxes travel over the same
// communicators, and none is finished for all ranks at the same moment.
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "comm/session/state.h"
#include "conformance/mailbox.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait::conformance {
namespace {

void run(const Body& body) { run_under_mpi(place_from_environment().world, body, {}); }

void loiter(std::minstd_rand& random) {
  if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
}

std::minstd_rand own_random(const Communicator& comm) {
  return std::minstd_rand(static_cast<unsigned>(comm.rank()) * 101 + 7);
}

void expect_sum_of_ones(Communicator& comm, int times) {
  for (int i = 0; i < times; ++i) ASSERT_EQ(sum_of_ones(comm), static_cast<float>(comm.world()));
}

TEST(MpiGroups, ComeAndGoWithoutABarrier) {
  run([](Communicator& comm) {
    std::minstd_rand random = own_random(comm);
    for (int round = 0; round < 40; ++round) {
      auto part = comm.split((comm.rank() + round) % 2, 0);
      auto smaller = part->split(comm.rank() % 3 == 0 ? -1 : 0, -comm.rank());
      loiter(random);
      if (smaller) expect_sum_of_ones(*smaller, 1);
      expect_sum_of_ones(*part, 1);
      if (random() % 2 == 0) part.reset();  // before its part, or after
    }
    expect_sum_of_ones(comm, 1);
  });
}

TEST(MpiGroups, MailboxesEndInAnyOrderWithUnreadChunks) {
  run([](Communicator& comm) {
    std::minstd_rand random = own_random(comm);
    const int world = comm.world();
    for (std::uint32_t round = 0; round < 40; ++round) {
      std::vector<std::unique_ptr<Mailbox>> mailboxes;
      for (const std::size_t bytes : {64U, 100'000U}) {  // taken up with the envelope, and after it
        mailboxes.push_back(comm.make_mailbox({.slots = 2, .slot_bytes = bytes, .poison = true}));
        Mailbox& mailbox = *mailboxes.back();
        for (int peer = 0; peer < world; ++peer) {
          send(mailbox, comm.rank(), peer, 0, round, bytes);
          send(mailbox, comm.rank(), peer, 1, round, bytes);
          send(mailbox, comm.rank(), peer, 1, round, bytes / 2);
        }
        loiter(random);
        for (int peer = 0; peer < world; ++peer)
          expect_chunk(mailbox, peer, comm.rank(), 0, round, bytes);
      }
      if (random() % 2 == 0) std::swap(mailboxes.front(), mailboxes.back());
      mailboxes.front().reset();
      loiter(random);
    }
    barrier(comm);
  });
}

TEST(MpiGroups, AreUsedByThreadsAtTheSameTime) {
  run([](Communicator& comm) {
    auto first = comm.split(0, comm.rank());
    auto second = comm.split(0, -comm.rank());
    const auto work = [](Communicator& own) {
      std::minstd_rand random = own_random(own);
      for (std::uint32_t round = 0; round < 20; ++round) {
        const auto mailbox = own.make_mailbox({.slots = 1, .slot_bytes = 64});
        loiter(random);
        for (int peer = 0; peer < own.world(); ++peer)
          send(*mailbox, own.rank(), peer, 0, round, 64);
        for (int peer = 0; peer < own.world(); ++peer)
          expect_chunk(*mailbox, peer, own.rank(), 0, round, 64);
        expect_sum_of_ones(own, 3);
      }
    };
    const std::jthread other([&] { work(*second); });
    work(*first);
  });
}

TEST(MpiGroups, BringTheLastWordsOfARankThatLeaves) {
  run([](Communicator& comm) {
    constexpr std::size_t kBytes = 3'000'000;
    auto part = comm.split(0, comm.rank());
    auto mailbox = part->make_mailbox({.slots = 1, .slot_bytes = kBytes});
    if (comm.rank() == 0) {
      for (int peer = 1; peer < comm.world(); ++peer) send(*mailbox, 0, peer, 0, 1, kBytes);
      mailbox.reset();
      part.reset();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(100 * comm.rank()));
      expect_chunk(*mailbox, 0, comm.rank(), 0, 1, kBytes);
    }
    barrier(comm);
  });
}

// A launcher divides by the ranks of its own host, which differ where those have uneven numbers.
TEST(MpiGroups, CountTheirHostsThemselves) {
  CommunicatorOptions options = {.place = place_from_environment()};
  const int world = options.place->world;
  options.place->hosts = options.place->rank + 1;
  options.link = parse_link("10gbit,5us");  // needs one host
  run_under_mpi(
      world,
      [](Communicator& comm) {
        EXPECT_EQ(comm.state().hosts(), 1);
        comm.state().set_host(comm.rank() == 0 ? "one" : "other");
        EXPECT_EQ(comm.with_link({}).state().hosts(), comm.world() == 1 ? 1 : 2);
        comm.state().set_host("");
        EXPECT_EQ(comm.with_link({}).state().hosts(), comm.world());
      },
      options);
}

TEST(MpiGroups, BringChunksThatNeedSeveralMessages) {
  run([](Communicator& comm) {
    constexpr std::size_t kBytes = (std::size_t{64} << 20) + 12'345;
    if (comm.world() != 2) return;
    const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = kBytes});
    if (comm.rank() == 0) send(*mailbox, 0, 1, 0, 1, kBytes);
    if (comm.rank() == 1) expect_chunk(*mailbox, 0, 1, 0, 1, kBytes);
    barrier(comm);
  });
}

// An exception of the caller's hook comes out of the call, and the others are told.
TEST(MpiGroups, HaveWaitsThatTheirCallerEnds) {
  struct Stopped {};
  std::atomic<bool> wished{false};
  const auto hook = [&] {
    if (wished.exchange(false)) throw Stopped{};
  };
  const auto body = [&](Communicator& comm) {
    if (comm.world() == 1) return;
    auto part = comm.split(0, comm.rank());
    if (comm.rank() == 0) {
      barrier(*part);
      wished = true;
      EXPECT_THROW(barrier(*part), Stopped);
    }
    expect_error(Code::peer_lost, 0, "rank 0 was interrupted", [&] {
      // Rank 0 may have come out of the first, and been interrupted, before the others have.
      if (comm.rank() != 0) barrier(*part);
      if (comm.rank() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
      for (;;) barrier(*part);
    });
    if (comm.rank() == 0) {
      barrier(comm);
      wished = true;
      EXPECT_THROW(comm.make_mailbox({.slots = 1, .slot_bytes = 8}), Stopped);
    } else {
      expect_error(Code::peer_lost, [&] {
        barrier(comm);
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        // All had done their part for the first: it is made, and the next call fails.
        for (;;) comm.make_mailbox({.slots = 1, .slot_bytes = 8});
      });
    }
  };
  run_under_mpi(place_from_environment().world, body, {.interrupted = hook});
}

// The others are told at once which rank has left, and all may try again.
TEST(MpiGroups, ConnectingEndsForAllWhereOneIsInterrupted) {
  struct Stopped {};
  run([&](Communicator& all) {
    if (all.world() < 3) return;
    const auto begin = std::chrono::steady_clock::now();
    bool is_wished = all.rank() == 0;
    const auto hook = [&] {
      if (!is_wished || std::chrono::steady_clock::now() - begin < std::chrono::seconds(1)) return;
      is_wished = false;
      throw Stopped{};
    };
    const CommunicatorOptions options = {
        .transport = "mpi", .place = place_from_environment(), .interrupted = hook};
    barrier(all);
    // The last rank doesn't connect before the others have failed.
    if (all.rank() == 0) {
      EXPECT_THROW(Communicator::connect(options), Stopped);
    } else if (all.rank() < all.world() - 1) {
      expect_error(Code::peer_lost, 0, "was interrupted while the group was",
                   [&] { Communicator::connect(options); });
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    barrier(all);
    Communicator again = Communicator::connect(options);
    barrier(again);
  });
}

// A process that ends without destroying its groups leaves all of them at once.
TEST(MpiGroups, AreLeftAllAtOnce) {
  run([](Communicator& comm) {
    if (comm.world() == 1) return;
    auto part = comm.split(comm.rank() == 1 ? 1 : 0, comm.rank());
    barrier(comm);
    if (comm.rank() == 1) {
      leave_all();
      expect_error(Code::invalid_argument, [&] { barrier(comm); });
      return;
    }
    for (int round = 0; round < 20; ++round) {
      barrier(*part);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    expect_error(Code::peer_lost, 1, "has left the group", [&] { barrier(comm); });
  });
}

}  // namespace
}  // namespace plait::conformance
