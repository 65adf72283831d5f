#include "conformance/transport.h"

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "plait/collectives.h"
#include "plait/timeline.h"

namespace plait::conformance {

// A program may link all suites and run only some.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportConformance);

TEST_P(TransportConformance, KnowsItsPlace) {
  run([&](Communicator& comm) {
    EXPECT_EQ(comm.world(), world());
    EXPECT_GE(comm.rank(), 0);
    EXPECT_LT(comm.rank(), world());
    EXPECT_EQ(comm.link().has_value(), !GetParam().maker.link.empty());
    float ranks = 1;
    all_reduce({&ranks, 1}, comm);
    EXPECT_EQ(ranks, static_cast<float>(world()));
  });
}

TEST_P(TransportConformance, SplitsByColorInOrderOfKey) {
  run([&](Communicator& comm) {
    // Odd and even ranks are split, each group in reversed order.
    auto half = comm.split(comm.rank() % 2, -comm.rank());
    ASSERT_TRUE(half.has_value());
    const int size = (comm.world() + 1 - comm.rank() % 2) / 2;
    EXPECT_EQ(half->world(), size);
    EXPECT_EQ(half->rank(), size - 1 - comm.rank() / 2);
    auto sum = static_cast<float>(comm.rank());
    all_reduce({&sum, 1}, *half);
    float expected = 0;
    for (int rank = comm.rank() % 2; rank < comm.world(); rank += 2)
      expected += static_cast<float>(rank);
    EXPECT_EQ(sum, expected);
    // The whole communicator still works, next to its part.
    float all = 1;
    all_reduce({&all, 1}, comm);
    EXPECT_EQ(all, static_cast<float>(world()));
  });
}

TEST_P(TransportConformance, LeavesOutNegativeColors) {
  run([&](Communicator& comm) {
    auto part = comm.split(comm.rank() == 0 ? -1 : 7, 0);
    EXPECT_EQ(part.has_value(), comm.rank() != 0);
    if (part) {
      EXPECT_EQ(part->world(), world() - 1);
      EXPECT_EQ(part->rank(), comm.rank() - 1);
      barrier(*part);
    }
  });
}

TEST_P(TransportConformance, SplitsAgainAndAgain) {
  run([&](Communicator& comm) {
    auto same = comm.split(0, comm.rank());
    ASSERT_TRUE(same.has_value());
    auto alone = same->split(same->rank(), 0);
    ASSERT_TRUE(alone.has_value());
    EXPECT_EQ(alone->world(), 1);
    barrier(*alone);
    barrier(*same);
    barrier(comm);
  });
}

TEST_P(TransportConformance, AbortReachesEverybody) {
  run([&](Communicator& comm) {
    expect_error(Code::peer_lost, world() - 1, "the test says so", [&] {
      barrier(comm);
      if (comm.rank() == world() - 1) comm.abort("the test says so");
      for (;;) barrier(comm);
    });
  });
}

// Another thread of one rank aborts the whole communicator while every rank, including that one,
// waits in a part, or in a part of a part, for a chunk that never comes.
TEST_P(TransportConformance, AbortByAnyThreadReachesSubGroups) {
  run([&](Communicator& comm) {
    auto half = comm.split(comm.rank() % 2, 0);
    auto part = half->split(0, 0);
    const auto mailbox = part->make_mailbox({.slots = 1, .slot_bytes = 8});
    std::thread other;
    const Error error = expect_error(Code::peer_lost, [&] {
      barrier(comm);
      if (comm.rank() == 0) {
        other = std::thread([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          comm.abort("another thread says so");
        });
      }
      mailbox->wait_arrived(0, 0, {});
    });
    if (other.joinable()) other.join();
    const std::string sentence = "rank 0 aborted: another thread says so";
    EXPECT_TRUE(contains(error.what(), sentence)) << error.what();
    for (Communicator* group : {&*part, &*half, &comm}) {
      const Error next = expect_error(Code::peer_lost, [&] { barrier(*group); });
      EXPECT_TRUE(contains(next.what(), sentence)) << next.what();
      // Rank 0 is only in the groups of the even ranks, as their first rank.
      const bool is_member = group == &comm || comm.rank() % 2 == 0;
      EXPECT_EQ(next.culprit(), is_member ? 0 : Error::kNoRank);
    }
  });
}

TEST_P(TransportConformance, AbortOfAPartLeavesTheWholeAlone) {
  run([&](Communicator& comm) {
    auto part = comm.split(0, 0);
    auto sibling = comm.split(0, 0);
    barrier(comm);
    if (comm.rank() == world() - 1) part->abort("only this one");
    expect_error(Code::peer_lost, [&] {
      if (comm.rank() == world() - 1) barrier(*part);
      const auto mailbox = part->make_mailbox({.slots = 1, .slot_bytes = 8});
    });
    barrier(*sibling);
    barrier(comm);
  });
}

TEST_P(TransportConformance, SaysWhoHasLeft) {
  if (world() == 1) return;  // no other rank can leave
  run([&](Communicator& comm) {
    barrier(comm);
    auto part = comm.split(0, comm.rank());
    if (comm.rank() == 0) {
      part.reset();
    } else {
      expect_error(Code::peer_lost, "left", [&] { barrier(*part), barrier(*part); });
    }
    barrier(comm);
  });
}

TEST_P(TransportConformance, WritesOneTimeline) {
  const std::string path = testing::TempDir() + fresh_job() + ".json";
  run([&](Communicator& comm) {
    Trace trace(comm.rank());
    for (int chunk = 0; chunk <= comm.rank(); ++chunk) {
      const Span span(&trace, Lane::compute, "work", {.chunk = chunk});
    }
    write_timeline(path, trace, comm);
    if (comm.rank() != 0) return;
    std::ifstream file(path);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    for (int rank = 0; rank < world(); ++rank) {
      EXPECT_TRUE(contains(text, "\"rank " + std::to_string(rank) + "\"")) << rank;
    }
    std::size_t spans = 0;
    for (auto at = text.find("\"work\""); at != std::string::npos;
         at = text.find("\"work\"", at + 1)) {
      ++spans;
    }
    EXPECT_EQ(spans, static_cast<std::size_t>(world() * (world() + 1) / 2));
    std::remove(path.c_str());
  });
}

TEST_P(TransportConformance, GivesUpAtTheDeadlineAndNamesTheLateOne) {
  if (world() == 1) return;
  // All but the late one must come within it, on few processors.
  const auto deadline = std::chrono::milliseconds(600 + 150 * world());
  run([&](Communicator& comm) {
    barrier(comm);
    set_timeout(comm, deadline);
    const int late = world() - 1;
    const Error error = expect_error(Code::timeout, [&] {
      if (comm.rank() == late) {
        // It is neither dead nor in another call, but absent, and then hears of it.
        std::this_thread::sleep_for(deadline + std::chrono::milliseconds(100));
        for (;; std::this_thread::sleep_for(std::chrono::milliseconds(5))) comm.check_ranks();
      }
      for (;;) barrier(comm);
    });
    if (GetParam().maker.sees_calls) {
      EXPECT_EQ(error.culprit(), late) << error.what();
    }
    EXPECT_TRUE(contains(error.what(), "barrier")) << error.what();
  });
}

}  // namespace plait::conformance
