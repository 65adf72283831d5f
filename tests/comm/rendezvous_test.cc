// How processes find each other, and what they say when they don't.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/check.h"
#include "base/socket.h"
#include "comm/meet/assembly.h"
#include "comm/meet/meeting_place.h"
#include "comm/meet/pending_connections.h"
#include "comm/milestones.h"
#include "comm/rendezvous_case.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait {
namespace {

using base::Fd;
using comm::shm::name_of_job;
using namespace rendezvous_case;

// Rank 0 gives an attempt up before it has heard the rank that calls it, and makes another one.
TEST(Rendezvous, ACallerThatRankZeroHasNotHeardCallsAgain) {
  const std::string job = fresh_job();
  fork_ranks(2, [&](int rank) {
    if (rank == 0) {
      comm::shm::MeetingPlace place(name_of_job(job), base::now() + 30 * base::kSecond);
      std::vector<const Fd*> listeners;
      for (const Fd& listener : place.listeners()) listeners.push_back(&listener);
      base::wait_readable(listeners, 30 * base::kSecond);
    }
    expect_group({.rank = rank, .world = 2, .job = job});
  });
}

Fd call(const std::string& job) {
  await_listener(job);
  auto socket = base::connect_to(name_of_job(job));
  EXPECT_TRUE(socket.has_value());
  return socket ? std::move(*socket) : Fd();
}

TEST(Rendezvous, RanksThatDisagreeOnTheWorldAllHearOfIt) {
  const std::string job = fresh_job();
  Milestones told;
  fork_ranks(4, [&](int rank) {
    if (rank == 1) told.await(0);  // rank 0 has found out already
    const Place place = {.rank = rank, .world = rank == 3 ? 5 : 4, .job = job};
    const Error error = error_of(options_for(place, kLong));
    if (rank == 3) told.reach(0);
    EXPECT_EQ(error.code(), Code::mismatch);
    EXPECT_EQ(error.culprit(), 3);
    EXPECT_TRUE(contains(error.what(), "rank 3 (pid ")) << error.what();
    EXPECT_TRUE(contains(error.what(), ") was started in a world of 5, rank 0 in one of 4"))
        << error.what();
  });
}

// Rank 0 stays for a second to tell rank 3, which has not come yet. The others connect again at
// once.
TEST(Rendezvous, RanksThatKnowOfARefusalConnectAgain) {
  const std::string job = fresh_job();
  Milestones failed;
  constexpr int kRankZero = 1;
  fork_ranks(4, [&](int rank) {
    if (rank == 3) {
      failed.await(kRankZero);
    } else {
      const Place wrong = {.rank = rank, .world = rank == 2 ? 5 : 4, .job = job};
      EXPECT_EQ(error_of(options_for(wrong, kLong)).code(), Code::mismatch);
      if (rank == 0) failed.reach(kRankZero);
    }
    expect_group({.rank = rank, .world = 4, .job = job});
  });
}

// A rank that greets as another build does is refused, and all are told which. One greeting is from
// before builds had names; tests/comm/launchers_test.py has whole programs of another build, over
// TCP.
TEST(Rendezvous, RanksOfAnotherBuildAreRefused) {
  const std::pair<std::string, std::string> others[] = {
      {"plait-2 1 3 77 0.0.9+0123456789ab", "rank 1 (pid 77) runs plait 0.0.9+0123456789ab, "},
      {"plait-1 1 3 77", "rank 1 (pid 77) runs plait of an older build, "}};
  for (const auto& [greeting, said] : others) {
    const std::string job = fresh_job();
    const std::string ending =
        base::sentence(") plait ", comm::build_name(), ": all ranks must run the same build");
    std::vector<std::function<void()>> processes;
    for (const int rank : {0, 2}) {
      processes.emplace_back([&, rank] {
        const Error error = expect_error(Code::mismatch, [&] {
          Communicator::connect(options_for({.rank = rank, .world = 3, .job = job}, kLong));
        });
        EXPECT_EQ(error.culprit(), 1);
        EXPECT_TRUE(std::string(error.what()).starts_with(said)) << error.what();
        EXPECT_TRUE(std::string(error.what()).ends_with(ending)) << error.what();
      });
    }
    processes.emplace_back([&] {
      const Fd socket = call(job);
      EXPECT_EQ(base::send_message(socket, greeting, Fd()), base::Delivery::done);
      base::Message verdict;
      base::wait_readable({&socket}, 30 * base::kSecond);
      EXPECT_EQ(base::receive_message(socket, verdict), base::Delivery::done);
      EXPECT_TRUE(contains(verdict.bytes, said)) << verdict.bytes;
    });
    fork_all(processes);
  }
}

TEST(Rendezvous, TwoProcessesThatClaimOneRankAreRefused) {
  const std::string job = fresh_job();
  fork_ranks(3, [&](int index) {
    const Place place = {.rank = index == 0 ? 0 : 1, .world = 3, .job = job};
    const Error error = expect_error(Code::invalid_argument,
                                     [&] { Communicator::connect(options_for(place, kLong)); });
    EXPECT_EQ(error.culprit(), 1);
    EXPECT_TRUE(contains(error.what(), "two processes (pid ")) << error.what();
    EXPECT_TRUE(contains(error.what(), ") claim rank 1 of 3")) << error.what();
  });
}

TEST(Rendezvous, ASecondRankZeroIsRefusedAndTheFirstGoesOn) {
  const std::string job = fresh_job();
  Milestones refused;
  std::vector<std::function<void()>> processes;
  processes.emplace_back([&] { expect_group({.rank = 0, .world = 2, .job = job}); });
  processes.emplace_back([&] {
    const Fd first = call(job);
    const std::string pids =
        base::sentence("(pid ", base::credentials_of(first).pid, " and pid ", ::getpid(), ")");
    expect_error(options_for({.rank = 0, .world = 2, .job = job}, kLong), Code::invalid_argument,
                 Error::kNoRank, "two processes " + pids + " claim rank 0");
    refused.reach(0);
  });
  processes.emplace_back([&] {
    refused.await(0);
    expect_group({.rank = 1, .world = 2, .job = job});
  });
  fork_all(processes);
}

// A process cannot tell its own two connects apart, nor can rank 0.
TEST(Rendezvous, TwoConnectsOfOneProcessAtOnceAreTold) {
  const std::string job = fresh_job();
  const std::string advice =
      ": let one be done before the other begins, or give each a job of its own";
  fork_ranks(2, [&](int rank) {
    if (rank == 0) {
      expect_error(Code::invalid_argument, 1, ") connect at once as rank 1 of 3" + advice, [&] {
        Communicator::connect(options_for({.rank = 0, .world = 3, .job = job}, kLong));
      });
      return;
    }
    const auto connect = [&] {
      EXPECT_EQ(
          std::string(error_of(options_for({.rank = 1, .world = 3, .job = job}, kLong)).what()),
          base::sentence("two threads of one process (pid ", ::getpid(),
                         ") connect at once as rank 1 of 3", advice));
    };
    const std::jthread other(connect);
    connect();
  });
}

TEST(Rendezvous, TwoConnectsOfRankZeroAtOnceAreTold) {
  struct Ended {};
  const std::string job = fresh_job();
  std::atomic<bool> refused{false};
  // It waits for rank 1, until the second has been refused.
  std::jthread first([&] {
    CommunicatorOptions options = options_for({.rank = 0, .world = 2, .job = job}, kLong);
    options.interrupted = [&] {
      if (refused) throw Ended{};
    };
    EXPECT_THROW(Communicator::connect(options), Ended);
  });
  await_listener(job);
  expect_error(options_for({.rank = 0, .world = 2, .job = job}, kLong), Code::invalid_argument,
               Error::kNoRank,
               base::sentence("two threads of one process (pid ", ::getpid(),
                              ") connect at once as rank 0: let one be done before the other "
                              "begins, or give each a job of its own"));
  refused = true;
}

TEST(Rendezvous, AllRanksHearWhichAreMissing) {
  const std::string job = fresh_job();
  Milestones started;
  fork_ranks(2, [&](int index) {
    started.reach(0);
    started.await(0, 2);
    expect_error(options_for({.rank = index * 2, .world = 4, .job = job}, kTimeToMeet),
                 Code::timeout, 1, "ranks 1 and 3 of 4 have not come within 2 s");
  });
}

TEST(Rendezvous, OneMissingRankIsNamedAlone) {
  expect_error(options_for({.rank = 0, .world = 2, .job = fresh_job()}, kShort), Code::timeout, 1,
               "rank 1 of 2 has not come within 500 ms");
}

TEST(Rendezvous, AMissingRankZeroIsNamed) {
  const std::string job = fresh_job();
  fork_ranks(2, [&](int index) {
    const int rank = index + 1;
    expect_error(options_for({.rank = rank, .world = 3, .job = job}, kShort), Code::timeout, 0,
                 "rank 0 of 3 has not come within 500 ms, or its group is complete without rank " +
                     std::to_string(rank));
  });
}

TEST(Rendezvous, ARankThatDiesWhileOthersAreAwaitedIsNamed) {
  const std::string job = fresh_job();
  Milestones ended;
  std::vector<std::function<void()>> processes;
  for (const int rank : {0, 1}) {
    processes.emplace_back([&, rank] {
      if (rank == 1) ended.await(0);  // rank 2 is as good as dead already
      expect_error(
          Code::peer_lost, 2, ") has died or given up while the group was assembling", [&] {
            Communicator::connect(options_for({.rank = rank, .world = 4, .job = job}, kLong));
          });
    });
  }
  processes.emplace_back([&] {
    Fd socket = call(job);
    EXPECT_EQ(base::send_message(socket, hello(2, 4), Fd()), base::Delivery::done);
    ::usleep(50'000);
    socket.reset();
    ended.reach(0);
  });
  fork_all(processes);
}

TEST(Rendezvous, AListenerThatNeverAnswersIsGivenUpAtTheDeadline) {
  const std::string job = fresh_job();
  Milestones done;
  std::vector<std::function<void()>> processes;
  processes.emplace_back([&] {
    const auto listener = base::listen_at(name_of_job(job));
    base::wait_readable({&*listener}, 20 * base::kSecond);
    auto first = base::accept_from(*listener);
    done.await(0, 2);
  });
  processes.emplace_back([&] {
    await_listener(job);
    expect_error(Code::timeout, 0, ") has said nothing for 500 ms", [&] {
      Communicator::connect(options_for({.rank = 1, .world = 2, .job = job}, kShort));
    });
    done.reach(0);
  });
  processes.emplace_back([&] {
    await_listener(job);
    expect_error(Code::invalid_argument, " claim rank 0", [&] {
      Communicator::connect(options_for({.rank = 0, .world = 2, .job = job}, kShort));
    });
    done.reach(0);
  });
  fork_all(processes);
}

TEST(Rendezvous, NonsenseAndSilenceDoNotKeepAGroupFromAssembling) {
  const std::string job = fresh_job();
  Milestones done;
  std::vector<std::function<void()>> processes;
  processes.emplace_back([&] {
    expect_group({.rank = 0, .world = 2, .job = job});
    done.reach(1);
  });
  processes.emplace_back([&] {
    std::vector<Fd> sockets;
    const std::string nothing(1, '\0');
    for (const std::string& text :
         {std::string("GET / HTTP/1.1\r\n"), nothing, std::string(base::kLongestMessage, 'x'),
          std::string("plait-1"), std::string("plait-1 1"), std::string("plait-1 one two three"),
          std::string("plait-2 1 2 3"), std::string("plait-1 1 2 3 4"),
          std::string("plait-3 1 2 3 4"), std::string("!0 1 failed"), std::string("welcome"),
          std::string("plait-1  1 2 3"), std::string("plait-1 99999999999999999999 2 3")}) {
      sockets.push_back(call(job));
      base::send_message(sockets.back(), text, Fd(::dup(STDIN_FILENO)));
      call(job);  // and away again, without a word
    }
    sockets.push_back(call(job));  // stays, without a word
    done.reach(0);
    done.await(1);
  });
  processes.emplace_back([&] {
    done.await(0);
    expect_group({.rank = 1, .world = 2, .job = job});
  });
  fork_all(processes);
}

TEST(Rendezvous, AFloodOfCallersDoesNotKeepAGroupFromAssembling) {
  const std::string job = fresh_job();
  Milestones done;
  std::vector<std::function<void()>> processes;
  processes.emplace_back([&] {
    const rlimit few = {.rlim_cur = 256, .rlim_max = 256};
    ::setrlimit(RLIMIT_NOFILE, &few);
    expect_group({.rank = 0, .world = 2, .job = job});
    done.reach(1);
  });
  processes.emplace_back([&] {
    const rlimit many = {.rlim_cur = 2048, .rlim_max = 2048};
    ::setrlimit(RLIMIT_NOFILE, &many);
    std::vector<Fd> sockets;
    await_listener(job);
    for (int i = 0; i < 1000; ++i) {
      auto socket = base::connect_to(name_of_job(job));
      if (socket) sockets.push_back(std::move(*socket));
    }
    EXPECT_GT(sockets.size(), 300U);
    done.reach(0);
    done.await(1);
  });
  processes.emplace_back([&] {
    done.await(0);
    expect_group({.rank = 1, .world = 2, .job = job});
  });
  fork_all(processes);
}

}  // namespace
}  // namespace plait
