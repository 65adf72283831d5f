// A group in which a rank dies, leaves, is late or makes another call, case by case; tests/chaos
// does the same at random.
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/meet/socket_rendezvous.h"
#include "comm/milestones.h"
#include "conformance/ranks.h"
#include "plait/all_to_all_rows.h"
#include "plait/collectives.h"

namespace plait {
namespace {

constexpr std::chrono::milliseconds kShort{400};

// The ways in which a rank can wait for the others of a group.
struct Wait {
  const char* name;
  std::function<void(Communicator&)> wait;
};

void PrintTo(const Wait& wait, std::ostream* out) { *out << wait.name; }  // NOLINT: gtest's name

void wait_in_mailbox(Communicator& comm) {
  Mailbox& mailbox = comm.cached_mailbox({.slots = 1, .slot_bytes = 64});
  for (int peer = 0; peer < comm.world(); ++peer) mailbox.post(peer, 0, {}, 1);
  for (int peer = 0; peer < comm.world(); ++peer) {
    mailbox.wait_arrived(peer, 0, {});
    mailbox.release(peer, 0);
  }
}

void poll_mailbox(Communicator& comm) {
  Mailbox& mailbox = comm.cached_mailbox({.slots = 1, .slot_bytes = 64});
  for (int peer = 0; peer < comm.world(); ++peer) {
    for (; !mailbox.vacant(peer, 0); mailbox.progress()) std::this_thread::yield();
    mailbox.post(peer, 0, {}, 1);
  }
  for (int peer = 0; peer < comm.world(); ++peer) {
    for (; !mailbox.arrived(peer, 0, {}); mailbox.progress()) std::this_thread::yield();
    mailbox.release(peer, 0);
  }
}

void send_rows_around(Communicator& comm) {
  const std::vector<float> rows(static_cast<std::size_t>(comm.world()) * 9000);
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(comm.world()), 3);
  ReceivedRows received;
  all_to_all_rows(ConstTensorView::of(rows.data(), 3 * comm.world(), 3000), counts, received, comm);
}

const Wait kWaits[] = {
    {"barrier", [](Communicator& comm) { barrier(comm); }},
    {"all_reduce", [](Communicator& comm) { sum_of_ones(comm); }},
    {"all_to_all_rows", send_rows_around},
    {"polling", poll_all_reduce},
    {"mailbox", wait_in_mailbox},
    {"polling_mailbox", poll_mailbox},
    {"make_mailbox", [](Communicator& comm) { comm.make_mailbox({.slots = 1, .slot_bytes = 64}); }},
    {"split", [](Communicator& comm) { comm.split(0, 0); }},
};

// True if the hook of this thread's group is to tell that it waits.
thread_local bool begins_to_wait = false;

class EveryWait : public testing::TestWithParam<Wait> {
 protected:
  static void wait(Communicator& comm) {
    for (;;) GetParam().wait(comm);
  }

  // Three ranks, as processes and as threads, with milestones of this run.
  using Body = std::function<void(Communicator& comm, Milestones& milestones)>;
  static void run(const Body& body) {
    for (const auto& runner : {run_in_processes, run_as_threads}) {
      Milestones milestones;
      // The library asks it where a rank waits, so that others have seen that by then.
      const auto hook = [&] {
        if (begins_to_wait) milestones.reach(kOneWaits);
      };
      begins_to_wait = false;
      runner(3, [&](Communicator& comm) { body(comm, milestones); }, {.interrupted = hook});
    }
  }

  static constexpr int kOneWaits = 0;  // a rank that has no deadline waits
  static constexpr int kGivenUp = 1;   // one that has one has reached it, or a rank has heard of it

  // One rank alone has a deadline, and it begins to wait when the other one waits.
  static void wait_for_a_late_one(Communicator& comm, Milestones& milestones, int gives_up) {
    if (comm.rank() == gives_up) {
      milestones.await(kOneWaits);
      set_timeout(comm, kShort);
    } else {
      begins_to_wait = true;
    }
    wait(comm);
  }
};

INSTANTIATE_TEST_SUITE_P(Reliability, EveryWait, testing::ValuesIn(kWaits),
                         [](const auto& one) { return std::string(one.param.name); });

// The deadline is a minute away: a rank that does not notice fails by the test's own timeout.
TEST_P(EveryWait, NoticesADeath) {
  const std::string job = fresh_job();
  fork_ranks(4, [&](int rank) {
    Communicator comm = Communicator::connect(shm_options(rank, 4, job));
    if (rank == 2) barrier(comm), ::_exit(0);  // as good as killed: nothing is destroyed
    const Error error = expect_error(Code::peer_lost, [&] { barrier(comm), wait(comm); });
    EXPECT_EQ(error.culprit(), 2) << error.what();
    EXPECT_TRUE(contains(error.what(), "rank 2 (pid ")) << error.what();
    // Nothing else is said by any later call.
    const Error again = expect_error(Code::peer_lost, [&] { barrier(comm); });
    EXPECT_STREQ(again.what(), error.what());
  });
}

// A rank that is in no call, and makes none with the dead one.
TEST(Reliability, ADeathIsSeenOutsideOfCalls) {
  const std::string job = fresh_job();
  Milestones polled;
  fork_ranks(3, [&](int rank) {
    Communicator comm = Communicator::connect(shm_options(rank, 3, job));
    barrier(comm);
    comm.check_ranks();  // all are there
    polled.reach(0);
    if (rank == 1) {
      polled.await(0, 3);
      ::_exit(0);
    }
    expect_error(Code::peer_lost, 1, [&] {
      while (true) {  // until the process has ended
        comm.check_ranks();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    expect_error(Code::peer_lost, [&] { comm.check_ranks(); });
  });
}

// The processes of a data loader keep open whatever the rank had open.
TEST_P(EveryWait, NoticesADeathThoughAChildOfTheDeadLives) {
  const std::string job = fresh_job();
  Milestones noticed;
  fork_ranks(3, [&](int rank) {
    Communicator comm = Communicator::connect(shm_options(rank, 3, job));
    if (rank == 1) {
      barrier(comm);
      if (::fork() == 0) {
        noticed.await(0, 2);
        ::_exit(0);
      }
      ::_exit(0);
    }
    expect_error(Code::peer_lost, 1, [&] { barrier(comm), wait(comm); });
    noticed.reach(0);
  });
}

TEST_P(EveryWait, NoticesThatARankHasLeft) {
  const auto body = [](Communicator& comm) {
    barrier(comm);
    auto part = comm.split(0, 0);
    barrier(comm);
    if (comm.rank() == 1) {
      part.reset();
    } else {
      expect_error(Code::peer_lost, 1, "left", [&] { wait(*part); });
    }
    barrier(comm);
  };
  run_in_processes(3, body);
  run_in_threads(3, body);
}

// A socket has room for fewer than 300 notices, and the rank that left makes no further call in
// which it could send the rest.
TEST(Reliability, ALeavingIsNoticedThoughThereWasNoRoomToTellOfIt) {
  constexpr int kGroups = 400;
  for (const int leaver : {0, 1}) {
    const std::string job = fresh_job();
    Milestones left;
    Milestones noticed;
    fork_ranks(2, [&](int rank) {
      CommunicatorOptions options = shm_options(rank, 2, job);
      options.timeout = std::chrono::seconds(80);
      Communicator comm = Communicator::connect(options);
      std::vector<Communicator> groups;
      groups.reserve(kGroups);
      for (int group = 0; group < kGroups; ++group) groups.push_back(*comm.split(0, rank));
      if (rank == leaver) {
        // The last one is left last.
        for (Communicator& group : groups) const Communicator gone = std::move(group);
        left.reach(0);
        return noticed.await(0);
      }
      left.await(0);
      expect_error(Code::peer_lost, leaver, "left", [&] { groups.back().split(0, 0); });
      noticed.reach(0);
    });
  }
}

TEST_P(EveryWait, EndsAtTheDeadline) {
  run([](Communicator& comm, Milestones& milestones) {
    barrier(comm);
    if (comm.rank() == 1) milestones.await(kGivenUp, 2);
    // Rank 2 has to see that rank 0, for which it waits first, waits too.
    const Error error =
        expect_error(Code::timeout, [&] { wait_for_a_late_one(comm, milestones, 2); });
    milestones.reach(kGivenUp);
    EXPECT_EQ(error.culprit(), 1) << error.what();
    EXPECT_TRUE(contains(error.what(), "rank 1")) << error.what();
  });
}

// Rank 0 waits for rank 1, first; rank 1 waits for rank 2, which is late.
TEST_P(EveryWait, BlamesTheOneForWhomAllWait) {
  run([](Communicator& comm, Milestones& milestones) {
    Mailbox& line = comm.cached_mailbox({.slots = 1, .slot_bytes = 1});
    barrier(comm);
    if (comm.rank() == 2) milestones.await(kGivenUp, 2);
    const Error error = expect_error(Code::timeout, [&] {
      if (comm.rank() == 1) {
        begins_to_wait = true;
        line.wait_arrived(2, 0, {});
      }
      wait_for_a_late_one(comm, milestones, 0);
    });
    milestones.reach(kGivenUp);
    EXPECT_EQ(error.culprit(), 2) << error.what();
    EXPECT_TRUE(contains(error.what(), "rank 2")) << error.what();
  });
}

TEST(Polling, ComputingBetweenTwoLooksIsNotWaiting) {
  run_in_processes(2, [](Communicator& comm) {
    barrier(comm);
    constexpr std::chrono::milliseconds kDeadline{1000};
    set_timeout(comm, kDeadline);
    float sum = 1;
    Pending pending = start_all_reduce({&sum, 1}, {&sum, 1}, comm);
    // Both compute for longer than the deadline, one of them even longer.
    std::this_thread::sleep_for((10 + comm.rank()) * kDeadline / 8);
    while (!pending.done()) std::this_thread::yield();
    EXPECT_EQ(sum, 2);
  });
}

TEST(Leaving, AfterTheLastCallDisturbsNobody) {
  for (int round = 0; round < 60; ++round) {
    run_in_threads(4, [&](Communicator& comm) {
      std::vector<float> all(8, 0);
      const std::vector<float> mine(2, static_cast<float>(comm.rank()));
      if (comm.rank() == round % 4) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      all_gather({mine.data(), mine.size()}, {all.data(), all.size()}, comm);
    });
  }
}

TEST(Disagreement, BetweenSetUpCallsNamesBoth) {
  const auto body = [](Communicator& comm) {
    const Error error = expect_error(Code::mismatch, [&] {
      barrier(comm);  // or a rank that still connects might get the error there
      if (comm.rank() == 0) {
        comm.split(0, 0);
      } else {
        comm.make_mailbox({.slots = 1, .slot_bytes = 64});
      }
    });
    EXPECT_TRUE(contains(error.what(), "split")) << error.what();
    EXPECT_TRUE(contains(error.what(), "make_mailbox")) << error.what();
    EXPECT_TRUE(contains(error.what(), "rank 0")) << error.what();
  };
  run_in_processes(3, body);
  run_in_threads(3, body);
}

TEST(Disagreement, BetweenACollectiveAndASetUpCallNamesBoth) {
  const auto body = [](Communicator& comm) {
    const Error error = expect_error(Code::mismatch, [&] {
      barrier(comm);  // or a rank that still connects might get the error there
      if (comm.rank() == 0) {
        barrier(comm);
      } else {
        comm.split(0, 0);
      }
    });
    EXPECT_TRUE(contains(error.what(), "split")) << error.what();
    EXPECT_TRUE(contains(error.what(), "barrier")) << error.what();
  };
  run_in_processes(3, body);
  run_in_threads(3, body);
}

// A rank that is lost while a new group is made has its number in the old one.
TEST(NewGroup, ErrorsNameRanksOfTheOldOne) {
  const std::string job = fresh_job();
  Milestones reached;
  constexpr int kGivenUp = 0;
  constexpr int kIsThere = 1;
  fork_ranks(3, [&](int rank) {
    const comm::shm::Endpoint endpoint = {.rank = rank, .world = 3, .timeout = 30 * base::kSecond};
    const auto rendezvous = comm::shm::meet_at("plait-test-" + job, endpoint);
    reached.reach(kIsThere);
    if (rank == 2) {
      rendezvous->all_gather("", {});  // agrees, and then does not come
      return reached.await(kGivenUp);
    }
    if (rank == 1) {
      reached.await(kIsThere, 3);
      rendezvous->set_timeout(base::kSecond);
    }
    const Error error = expect_error(Code::timeout, [&] {
      rendezvous->subgroup(rank == 0 ? std::vector<int>{} : std::vector<int>{1, 2}, {});
      if (rank == 0) throw Error(Code::timeout, "joins none", 2);
    });
    EXPECT_EQ(error.culprit(), 2);
    if (rank == 1) {
      reached.reach(kGivenUp);
      EXPECT_STREQ(error.what(),
                   "split: rank 2, rank 1 of the new group: rank 1 of 2 has not come within 1 s");
    }
  });
}

}  // namespace
}  // namespace plait
