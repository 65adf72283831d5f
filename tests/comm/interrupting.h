// Waits that end by what a caller's hook throws (CommunicatorOptions::interrupted), over any
// transport between processes.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <ostream>
#include <string>
#include <thread>

#include "comm/milestones.h"
#include "comm/prompt.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait {

constexpr std::chrono::milliseconds kUntilAsked{60};

// No std::exception: what is thrown is the caller's own affair.
struct Stopped {};

// Says from a moment on that the wait is to end, and throws once, as PyErr_CheckSignals() does.
class Wish {
 public:
  void wish_at(Clock::time_point at) { at_ = at.time_since_epoch().count(); }
  Clock::time_point at() const { return Clock::time_point(Clock::duration(at_)); }

  std::function<void()> hook() {
    return [this] {
      if (at_ == 0 || Clock::now() < at() || thrown_.exchange(true)) return;
      throw Stopped{};
    };
  }

 private:
  std::atomic<Clock::rep> at_{0};
  std::atomic<bool> thrown_{false};
};

// Expects that the call ends by what the hook throws, and soon.
inline void expect_stopped(const Wish& wish, Prompt& prompt, const std::function<void()>& call) {
  EXPECT_THROW(call(), Stopped);
  prompt.took(Clock::now() - wish.at());
}

struct Wait {
  const char* name;
  std::function<void(Communicator&)> wait;
};

inline void PrintTo(const Wait& wait, std::ostream* out) { *out << wait.name; }  // NOLINT: gtest's

constexpr MailboxDesc kLine = {.slots = 1, .slot_bytes = 8};

// Every kind of wait in a group, for a rank that does nothing.
inline const Wait kWaits[] = {
    {"barrier", [](Communicator& comm) { barrier(comm); }},
    {"polling",
     [](Communicator& comm) {
       Pending pending = start_barrier(comm);
       while (!pending.done()) std::this_thread::yield();
     }},
    {"waiting_for_a_pending", [](Communicator& comm) { start_barrier(comm).wait(); }},
    {"mailbox",
     [](Communicator& comm) { comm.cached_mailbox(kLine).wait_arrived(1 - comm.rank(), 0, {}); }},
    {"polling_mailbox",
     [](Communicator& comm) {
       Mailbox& mailbox = comm.cached_mailbox(kLine);
       for (; !mailbox.arrived(1 - comm.rank(), 0, {}); mailbox.progress())
         std::this_thread::yield();
     }},
    {"make_mailbox", [](Communicator& comm) { comm.make_mailbox({.slots = 2, .slot_bytes = 8}); }},
    {"split", [](Communicator& comm) { comm.split(0, 0); }},
};

// On both ranks of a group: the wait of rank 0 ends, and rank 1 is told.
inline void interrupt(Communicator& comm, const Wait& wait, Wish& wish, Prompt& prompt,
                      Milestones& ended) {
  comm.cached_mailbox(kLine);
  barrier(comm);
  if (comm.rank() == 1) {
    ended.await(0);
  } else {
    wish.wish_at(Clock::now() + kUntilAsked);
    expect_stopped(wish, prompt, [&] { wait.wait(comm); });
    ended.reach(0);
  }
  // Rank 0 may have done its part of a barrier before it was interrupted.
  expect_error(Code::peer_lost, 0, "rank 0 was interrupted", [&] {
    barrier(comm);
    barrier(comm);
  });
}

inline void expect_that_a_wait_ends(const std::string& transport, const Wait& wait) {
  SCOPED_TRACE(transport + ' ' + wait.name);
  Prompt prompt;
  prompt.expect([&] {
    Milestones ended;
    const std::string job = fresh_job();
    fork_ranks(2, [&](int rank) {
      Wish wish;
      Communicator comm =
          Communicator::connect({.transport = transport,
                                 .place = Place{.rank = rank, .world = 2, .job = job},
                                 .interrupted = wish.hook()});
      interrupt(comm, wait, wish, prompt, ended);
    });
  });
}

// Has each rank's hook tell how far two ranks of a group are that assembles: rank 0 has met rank 1.
// Each counts questions once the other is so far, so that none of them may be late.
class MeetingProgress {
 public:
  // For the hook of rank 0 or 1, at each question. Whether they have met.
  bool have_met(int rank, int& asked) {
    constexpr int kMany = 20;  // questions, in which a rank calls that listens, or hears a caller
    constexpr int kListens = 0;
    constexpr int kHasCalled = 1;
    constexpr int kMet = 2;
    if (rank == 0 && reached_.reached(kListens) == 0) reached_.reach(kListens);
    const int before = rank == 0 ? kHasCalled : kListens;
    if (reached_.reached(before) > 0 && ++asked == kMany) reached_.reach(before + 1);
    return reached_.reached(kMet) > 0;
  }

 private:
  Milestones reached_;
};

// While ranks find each other: rank 2 never comes.
inline void expect_that_connecting_ends(const std::string& transport) {
  for (const int interrupted : {0, 1}) {
    SCOPED_TRACE(transport + ", rank " + std::to_string(interrupted));
    Prompt prompt;
    prompt.expect([&] {
      const std::string job = fresh_job();
      MeetingProgress meeting;
      fork_ranks(2, [&](int rank) {
        Wish wish;
        int asked = 0;
        const auto hook = [&, stop = wish.hook()] {
          if (!meeting.have_met(rank, asked) || rank != interrupted) return;
          if (wish.at() == Clock::time_point()) wish.wish_at(Clock::now() + kUntilAsked);
          stop();
        };
        const CommunicatorOptions options = {.transport = transport,
                                             .place = Place{.rank = rank, .world = 3, .job = job},
                                             .interrupted = hook};
        const auto connect = [&] { Communicator::connect(options); };
        if (rank == interrupted) return expect_stopped(wish, prompt, connect);
        expect_error(Code::peer_lost, interrupted, connect);
      });
    });
  }
}

}  // namespace plait
