// Which rank is blamed where threads of one rank wait at once, and how the late one is named.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "comm/core/wait.h"
#include "comm/milestones.h"
#include "comm/session/state.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait {
namespace {

constexpr std::chrono::milliseconds kShort{400};

// Milestones: a rank has given up, and another one is where it is meant to be then.
constexpr int kGivenUp = 0;
constexpr int kReady = 1;

// True if the hook of this thread's group is to tell that it waits.
thread_local bool waits_for_the_late_one = false;

// Rank 2 waits for rank 0. One thread of rank 0 waits for rank 1, which is late, while another one
// waits for rank 3 again and again: that one's waits must not hide the first's.
TEST(Blame, FollowsTheWaitThatLasts) {
  Milestones milestones;
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
        waits_for_the_late_one = true;
        line->wait_arrived(1, 0, {});
      }
      if (comm.rank() == 1) milestones.await(kGivenUp, 3);
      if (comm.rank() == 2) {
        milestones.await(kReady);
        set_timeout(comm, kShort);
      }
      if (comm.rank() == 3) bounce(0);
      line->wait_arrived(0, 0, {});
    });
    milestones.reach(kGivenUp);
    EXPECT_EQ(error.culprit(), 1) << error.what();
  };
  const auto hook = [&] {
    if (waits_for_the_late_one) milestones.reach(kReady);
  };
  run_as_threads(4, body, {.interrupted = hook});
}

// At the deadline a sentence tells a rank that works from one that is stuck, and from one whose
// program is elsewhere. Rank 1 is late, in different manners.
void expect_blame(const std::function<void(Communicator& comm, Milestones& milestones)>& be_late,
                  const std::string& sentence,
                  const std::vector<RunRanks>& runners = {run_in_processes, run_as_threads},
                  std::chrono::milliseconds timeout = kShort) {
  for (const RunRanks& runner : runners) {
    Milestones milestones;
    const auto body = [&](Communicator& comm) {
      barrier(comm);
      if (comm.rank() == 1) return be_late(comm, milestones);
      milestones.await(kReady);
      set_timeout(comm, timeout);
      comm::Group& group = comm.state().group();
      const Tag tag = {.operation = Operation::matmul_all_reduce, .call = 9};
      group.announce(tag);
      expect_error(Code::timeout, 1, sentence, [&] {
        comm::wait_until(
            group, [] { return false; }, [] { return comm::kNever; },
            [&] { return comm::Awaited{.peer = 1, .tag = tag}; });
      });
      milestones.reach(kGivenUp);
    };
    runner(2, body);
  }
}

TEST(Blame, SaysThatTheLateOneMultiplies) {
  const auto multiply = [](Communicator& comm, Milestones& milestones) {
    comm::Group& group = comm.state().group();
    const Tag tag = {.operation = Operation::matmul_all_reduce, .call = 9};
    group.announce(tag);
    const comm::Awaited here = {.peer = comm.rank(), .tag = tag};
    const auto look_on = [&] {
      while (true) {
        group.examine(&here, [] { return true; });
        milestones.reach(kReady);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    };
    // Ends with what the other rank says when it gives up.
    expect_error(Code::timeout, look_on);
  };
  const std::string sentence = "; rank 1 is in matmul_all_reduce, multiplying; last sign of life ";
  expect_blame(multiply, sentence);
  // A rank that is asked what it does answers within this time.
  expect_blame(multiply, sentence, {run_over_tcp}, std::chrono::seconds(1));
}

TEST(Blame, SaysThatTheLateOneIsStuck) {
  const auto hang = [](Communicator& comm, Milestones& milestones) {
    comm::Group& group = comm.state().group();
    const Tag tag = {.operation = Operation::matmul_all_reduce, .call = 9};
    group.announce(tag);
    milestones.reach(kReady);
    milestones.await(kGivenUp);
  };
  expect_blame(hang, "; rank 1 is in matmul_all_reduce; no sign of life since it began");
}

TEST(Blame, SaysThatTheLateOneHasStartedACollective) {
  const auto ask_for_a_while = [](Communicator& comm, Milestones& milestones) {
    Pending pending = start_barrier(comm);
    for (int i = 0; i < 10; ++i) {
      EXPECT_FALSE(pending.done());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    milestones.reach(kReady);
    milestones.await(kGivenUp);
  };
  expect_blame(ask_for_a_while, "; rank 1 has started barrier, and last asked for it ");
}

TEST(Blame, SaysThatTheLateOneIsElsewhere) {
  const auto be_elsewhere = [](Communicator& /*comm*/, Milestones& milestones) {
    milestones.reach(kReady);
    milestones.await(kGivenUp);
  };
  expect_blame(be_elsewhere, "; rank 1 is in no call of this group; its last was barrier");
}

// Rank 0 waits for rank 1, which waits in another communicator: for rank 0, or for rank 2, which is
// late.
void expect_blame_of_a_wait_elsewhere(const RunRanks& runner, int late,
                                      std::chrono::milliseconds timeout) {
  Milestones milestones;
  const auto body = [&](Communicator& comm) {
    std::optional<Communicator> part =
        comm.split(comm.rank() == 1 || comm.rank() == late ? 0 : 1, 0);
    barrier(comm);
    if (comm.rank() == 1) return barrier(*part);
    if (comm.rank() == 0) {
      set_timeout(comm, timeout);
      comm::Group& group = comm.state().group();
      const Error error = expect_error(Code::timeout, [&] {
        comm::wait_until(
            group, [] { return false; }, [] { return comm::kNever; },
            [&] { return comm::Awaited{.peer = 1, .tag = {.operation = Operation::barrier}}; });
      });
      milestones.reach(kGivenUp);
      if (late == 0) {
        EXPECT_EQ(error.culprit(), 1) << error.what();
        EXPECT_TRUE(contains(error.what(),
                             "; rank 1 waits in another communicator, in barrier, for rank 0"))
            << error.what();
      } else {
        EXPECT_EQ(error.culprit(), late) << error.what();
        EXPECT_TRUE(contains(error.what(), "; in the end all wait for rank 2")) << error.what();
      }
    }
    milestones.await(kGivenUp);
    if (comm.rank() == late) barrier(*part);
  };
  runner(3, body);
}

TEST(Blame, NamesAWaitInAnotherGroup) {
  for (const int late : {0, 2}) {
    expect_blame_of_a_wait_elsewhere(run_as_threads, late, kShort);
    expect_blame_of_a_wait_elsewhere(run_in_processes, late, kShort);
    expect_blame_of_a_wait_elsewhere(run_over_tcp, late, std::chrono::seconds(1));
  }
}

// The sentence without what differs between two runs: the numbers and states of processes, and the
// names of hosts. One thread at a time: the library's first expressions fill a table that all
// share.
std::string without_names(const std::string& sentence) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return std::regex_replace(sentence, std::regex("pid [0-9]+[^)]*"), "pid N");
}

// Rank 0 waits for rank 1, which waits for rank 2, in a group of its own. Rank 2 makes no call, and
// `is_late` says what it does meanwhile.
std::string blame_in_a_chain(Communicator& comm, Milestones& milestones, const Body& is_late) {
  Communicator group = *comm.split(0, comm.rank());
  const auto line = group.make_mailbox({.slots = 1, .slot_bytes = 8});
  barrier(group);
  if (comm.rank() == 2) {
    is_late(group);
    return "";
  }
  if (comm.rank() == 0) {
    milestones.await(kReady);
    set_timeout(group, kShort);
  } else {
    waits_for_the_late_one = true;
  }
  const Error error =
      expect_error(Code::timeout, [&] { line->wait_arrived(group.rank() + 1, 0, {}); });
  waits_for_the_late_one = false;
  milestones.reach(kGivenUp);
  EXPECT_EQ(error.culprit(), 2) << error.what();
  return without_names(error.what());
}

// Rank 0 multiplies all the time and waits for no rank.
std::string blame_of_itself(Communicator& comm) {
  Communicator group = *comm.split(0, comm.rank());
  barrier(group);
  const Error error = expect_error(Code::timeout, [&] {
    comm::Group& ranks = group.state().group();
    if (comm.rank() == 0) set_timeout(group, kShort);
    const Tag tag = {.operation = Operation::matmul_all_reduce, .call = 9};
    comm::wait_until(
        ranks, [] { return false; }, [] { return comm::kNever; },
        [&] { return comm::Awaited{.peer = 0, .tag = tag}; });
  });
  EXPECT_EQ(error.culprit(), 0) << error.what();
  return without_names(error.what());
}

// In groups of each kind: `process` is a rank's process in the sentence, `own` this rank's, and
// `silent` a late rank that answers nothing.
struct KindOfGroup {
  RunRanks run;
  std::string process;
  std::string own;
  std::string silent = "rank 2 is in no call of this group, or stopped";
};

void expect_sentences(const KindOfGroup& kind) {
  const std::string chain =
      "custom: rank 0 waits for chunk 0 from rank 1 for 400 ms; in the end all wait for rank 2 (" +
      kind.process + "); ";
  const std::string idle = "rank 2 is in no call of this group; its last was barrier";
  Milestones silent;
  Milestones polling;
  const auto body = [&](Communicator& comm) {
    const std::string of_silent =
        blame_in_a_chain(comm, silent, [&](Communicator& /*group*/) { silent.await(kGivenUp, 2); });
    const std::string of_polling = blame_in_a_chain(comm, polling, [&](Communicator& group) {
      expect_error(Code::timeout, [&] {
        while (true) {
          group.state().group().examine(nullptr, [] { return true; });
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      });
    });
    if (comm.rank() != 2) {
      EXPECT_EQ(of_silent, chain + kind.silent);
      EXPECT_EQ(of_polling, chain + idle);
    }
    EXPECT_EQ(blame_of_itself(comm),
              "matmul_all_reduce: rank 0 multiplies, and is at chunk 0 for 400 ms" + kind.own);
  };
  const auto hook = [&] {
    if (waits_for_the_late_one) (silent.reached(kGivenUp) < 2 ? silent : polling).reach(kReady);
  };
  kind.run(3, body, {.interrupted = hook});
}

TEST(Blame, SaysWhoIsWaitedForInTheEndInEveryKindOfGroup) {
  const std::string idle = "rank 2 is in no call of this group; its last was barrier";
  expect_sentences({.run = run_as_threads,
                    .process = "a thread of this process",
                    .own = " (a thread of this process)",
                    .silent = idle});
  expect_sentences(
      {.run = run_in_processes, .process = "pid N", .own = " (pid N)", .silent = idle});
  for (const auto& run : {RunRanks(run_over_tcp), over_hosts({0, 1, 1})})
    expect_sentences({.run = run, .process = "pid N", .own = ""});
}

}  // namespace
}  // namespace plait
