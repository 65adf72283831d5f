// Properties of simulated ranks beyond their mailboxes (modelled_mailbox_test.cc).
#include "simulation/simulation.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "comm/session/state.h"
#include "plait/all_to_all_rows.h"
#include "plait/collectives.h"
#include "simulation/sim_rank.h"

namespace plait::comm::modelled {
namespace {

constexpr std::size_t kBytes = 1000;
constexpr Nanoseconds kLatency = 500;
constexpr Nanoseconds kCarried = 1000;  // of kBytes over kLink
const Link kLink = {.bytes_per_second = 1e9, .latency_ns = kLatency};

SimRank& me(Communicator& comm) { return Simulation::rank_of(comm); }

void post(Mailbox& mailbox, int peer, std::uint32_t number) {
  mailbox.outbox(peer, 0);
  mailbox.post(peer, 0, {.chunk = number}, kBytes);
}

void take(Mailbox& mailbox, int source, std::uint32_t number) {
  mailbox.wait_arrived(source, 0, {.chunk = number});
  mailbox.release(source, 0);
}

TEST(Simulation, AChunkTakesItsBytesAndTheLatency) {
  Simulation simulation({.ranks = 2, .network = {.link = kLink}});
  simulation.run([](Communicator& comm) {
    const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = kBytes});
    if (comm.rank() == 0) {
      me(comm).spend(70);
      post(*mailbox, 1, 1);
      EXPECT_EQ(me(comm).now(), 70);
    } else {
      EXPECT_FALSE(mailbox->arrived(0, 0, {.chunk = 1}));
      take(*mailbox, 0, 1);
      EXPECT_EQ(me(comm).now(), 70 + kCarried + kLatency);
    }
  });
  EXPECT_EQ(simulation.end(), 70 + kCarried + kLatency);
}

// All ranks send a chunk to all others at once.
Nanoseconds all_to_all(int ranks, Wiring wiring) {
  Simulation simulation({.ranks = ranks, .network = {.link = kLink, .wiring = wiring}});
  simulation.run([&](Communicator& comm) {
    const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = kBytes});
    for (int step = 1; step < ranks; ++step) post(*mailbox, (comm.rank() + step) % ranks, 1);
    for (int step = 1; step < ranks; ++step) take(*mailbox, (comm.rank() + step) % ranks, 1);
  });
  return simulation.end();
}

TEST(Simulation, WiresAreWhatRanksShare) {
  EXPECT_EQ(all_to_all(4, Wiring::pairs), kCarried + kLatency);
  EXPECT_EQ(all_to_all(4, Wiring::ports), 3 * kCarried + kLatency);
  EXPECT_EQ(all_to_all(4, Wiring::shared), 12 * kCarried + kLatency);
}

// Their numbers are in the first chunk, and cost no round of their own.
TEST(Simulation, RowsTakeTheirBytesAndOneLatency) {
  constexpr std::int64_t kRows = 10;
  constexpr std::int64_t kColumns = 100;
  Simulation simulation({.ranks = 3, .network = {.link = kLink, .wiring = Wiring::pairs}});
  simulation.run([&](Communicator& comm) {
    const std::vector<float> x(kRows * kColumns * 3, static_cast<float>(comm.rank()));
    const std::vector<std::int64_t> counts(3, kRows);
    ReceivedRows received;
    const Nanoseconds before = me(comm).now();
    all_to_all_rows(ConstTensorView::of(x.data(), 3 * kRows, kColumns), counts, received, comm);
    constexpr std::int64_t kHeader = 64;
    constexpr std::int64_t kSent = kHeader + kRows * kColumns * std::int64_t{sizeof(float)};
    EXPECT_EQ(me(comm).now() - before, kSent + kLatency);
    EXPECT_EQ(*static_cast<const float*>(received.rows.row(2 * kRows)), 2.0F);
  });
}

// The link carries a byte in a nanosecond, and processors take a tenth of that at both ends.
Network network_with_work(double ns_per_byte = 0.1) {
  return {.link = kLink, .wiring = Wiring::ports, .processor_ns_per_byte = ns_per_byte};
}

TEST(Simulation, ProcessorsWorkForTheNetwork) {
  Simulation simulation({.ranks = 3, .network = network_with_work()});
  simulation.run([](Communicator& comm) {
    const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = kBytes});
    if (comm.rank() == 0) post(*mailbox, 1, 1);
    me(comm).spend(4'000);
    me(comm).work({.time = 6'000, .poll = 10'000}, [] {});
    EXPECT_EQ(me(comm).now(), comm.rank() < 2 ? 10'100 : 10'000);
  });
}

TEST(Simulation, AProductStandsStillWhileItsProcessorWorksForTheNetwork) {
  Simulation simulation({.ranks = 2, .network = network_with_work()});
  simulation.run([](Communicator& comm) {
    const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = kBytes});
    if (comm.rank() == 0) post(*mailbox, 1, 1);
    // Half of the sender's work for the network is done after this.
    me(comm).work({.time = 50, .poll = 10'000}, [] {});
    EXPECT_EQ(me(comm).now(), comm.rank() == 0 ? 150 : 50);
    me(comm).work({.time = 550, .poll = 10'000}, [] {});
    EXPECT_EQ(me(comm).now(), 700);
  });
}

TEST(Simulation, AWaitHidesWorkForTheNetwork) {
  Simulation simulation({.ranks = 2, .network = network_with_work()});
  simulation.run([](Communicator& comm) {
    const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = kBytes});
    post(*mailbox, 1 - comm.rank(), 1);
    take(*mailbox, 1 - comm.rank(), 1);
    EXPECT_EQ(me(comm).now(), kCarried + kLatency);
    me(comm).spend(100);
    EXPECT_EQ(me(comm).now(), kCarried + kLatency + 100);
  });
}

// Processors that take longer for bytes than the link does slow the network down. Each works on one
// chunk after another, so one of the ranks receives first and then sends.
TEST(Simulation, AChunkHasComeWhenProcessorsAreDoneWithIt) {
  for (const bool both_ways : {false, true}) {
    Simulation simulation({.ranks = 2, .network = network_with_work(3)});
    simulation.run([&](Communicator& comm) {
      const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = kBytes});
      if (comm.rank() == 0 || both_ways) post(*mailbox, 1 - comm.rank(), 1);
      if (comm.rank() == 1 || both_ways) take(*mailbox, 1 - comm.rank(), 1);
    });
    EXPECT_EQ(simulation.end(), (both_ways ? 2 : 1) * (3000 + kLatency));
    EXPECT_EQ(simulation.network_work(), both_ways ? 6000 : 3000);
  }
}

TEST(Simulation, RoomIsThereWhenItIsGivenBack) {
  Simulation simulation({.ranks = 2, .network = {.link = kLink}});
  simulation.run([](Communicator& comm) {
    const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = kBytes});
    if (comm.rank() == 0) {
      for (std::uint32_t number = 1; number <= 3; ++number) post(*mailbox, 1, number);
      EXPECT_EQ(me(comm).now(), 5000);
    } else {
      me(comm).spend(5000);
      for (std::uint32_t number = 1; number <= 3; ++number) take(*mailbox, 0, number);
    }
  });
}

TEST(Simulation, WorkPollsWhereSomethingHasCome) {
  Simulation simulation({.ranks = 2, .network = {.link = kLink}});
  simulation.run([](Communicator& comm) {
    const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = kBytes});
    if (comm.rank() == 0) return post(*mailbox, 1, 1);
    std::vector<Nanoseconds> polls;
    me(comm).work({.time = 10'000, .poll = 400}, [&] {
      polls.push_back(me(comm).now());
      me(comm).spend(50);
    });
    // The chunk is there at 1500.
    EXPECT_EQ(polls, std::vector<Nanoseconds>{1600});
    EXPECT_EQ(me(comm).now(), 10'050);
    EXPECT_TRUE(mailbox->arrived(0, 0, {.chunk = 1}));
  });
}

TEST(Simulation, WorkIsSlowerWhileWiresAreInUse) {
  Simulation simulation({.ranks = 2, .network = {.link = kLink}});
  simulation.run([](Communicator& comm) {
    const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = kBytes});
    if (comm.rank() == 0) post(*mailbox, 1, 1);
    me(comm).work({.time = 10'000, .poll = 10'000, .share = 0.1}, [] {});
    EXPECT_EQ(me(comm).now(), 10'000 + (kCarried + kLatency) / 10);
  });
}

TEST(Simulation, MemoryWorkTakesItsTime) {
  const MemoryWork work = {.label = "sum", .read = 600, .written = 400};
  for (const bool in_background : {false, true}) {
    Simulation simulation(
        {.ranks = 2,
         .network = {.link = kLink},
         .no_storage = true,
         .memory_costs = {.bytes_per_second = 1e9, .each = 10, .in_background = in_background}});
    simulation.run([&](Communicator& comm) {
      const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = kBytes});
      if (comm.rank() == 0) {
        EXPECT_TRUE(me(comm).run(work));
        EXPECT_EQ(me(comm).now(), in_background ? 0 : 1010);
        post(*mailbox, 1, 1);
        me(comm).drain();
        EXPECT_EQ(me(comm).now(), 1010);
      } else {
        take(*mailbox, 0, 1);  // it went out when the copy was made
        EXPECT_EQ(me(comm).now(), 1010 + kCarried + kLatency);
      }
    });
  }
  Simulation with_memory({.ranks = 1, .network = {.link = kLink}});
  with_memory.run([&](Communicator& comm) { EXPECT_FALSE(me(comm).run(work)); });
}

TEST(Simulation, WaitsAreAsFineAsLooksAtAllPeers) {
  Simulation simulation({.ranks = 3, .network = {.link = kLink}, .poll_cost = 400});
  simulation.run([](Communicator& comm) {
    const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = kBytes});
    if (comm.rank() == 0) return post(*mailbox, 1, 1);
    if (comm.rank() == 2) return;
    take(*mailbox, 0, 1);
    EXPECT_EQ(me(comm).now(), 1600);
  });
}

TEST(Simulation, NamesTheWaitingRanksWhereNoneCanGoOn) {
  Simulation simulation({.ranks = 3, .network = {.link = kLink}});
  try {
    simulation.run([](Communicator& comm) {
      const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = kBytes});
      if (comm.rank() < 2) mailbox->wait_arrived(2, 0, {.chunk = 7});
    });
    FAIL() << "it ended";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::timeout);
    EXPECT_EQ(error.culprit(), 2);
    const std::string sentence = error.what();
    EXPECT_NE(sentence.find("no modelled rank of 3 can go on"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("rank 1 waits for chunk 7 from rank 2"), std::string::npos) << sentence;
  }
}

TEST(Simulation, ARankThatThrowsEndsTheOthersToo) {
  Simulation simulation({.ranks = 2, .network = {.link = kLink}});
  int ended = 0;
  try {
    simulation.run([&](Communicator& comm) {
      if (comm.rank() == 1) {
        comm.make_mailbox({.slots = 1, .slot_bytes = kBytes});
        throw Error(Code::system, "no more paper");
      }
      try {
        comm.make_mailbox({.slots = 1, .slot_bytes = kBytes})->wait_arrived(1, 0, {});
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::peer_lost) << error.what();
        ++ended;
        throw;
      }
    });
    FAIL() << "it ended";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "no more paper");
  }
  EXPECT_EQ(ended, 1);
}

TEST(Simulation, CollectivesWorkInIt) {
  Simulation simulation({.ranks = 5, .network = {.link = kLink}});
  simulation.run([](Communicator& comm) {
    EXPECT_EQ(comm.link(), kLink);
    std::vector<float> ones(100'000, 1);
    all_reduce({ones.data(), ones.size()}, comm);
    EXPECT_EQ(ones, std::vector<float>(ones.size(), 5));
    EXPECT_GT(me(comm).now(), 0);
  });
}

TEST(Simulation, IsTheSameEveryTime) {
  const auto end = [] {
    Simulation simulation({.ranks = 7, .network = {.link = kLink, .wiring = Wiring::ports}});
    simulation.run([](Communicator& comm) {
      std::vector<float> some(10'000 + static_cast<std::size_t>(comm.world()));
      for (int i = 0; i < 3; ++i) {
        me(comm).spend(comm.rank() * base::kMicrosecond);
        all_reduce({some.data(), some.size()}, comm);
      }
    });
    return simulation.end();
  };
  const Nanoseconds first = end();
  EXPECT_EQ(end(), first);
}

TEST(Simulation, RefusesWhatIsNone) {
  EXPECT_THROW(Simulation({.ranks = 0, .network = {.link = kLink}}), Error);
  EXPECT_THROW(Simulation({.ranks = 2, .network = {.link = {.bytes_per_second = 0}}}), Error);
  Simulation simulation({.ranks = 2, .network = {.link = kLink}});
  EXPECT_THROW(simulation.run([](Communicator& comm) { comm.split(comm.rank(), 0); }), Error);
}

TEST(Simulation, HasTheSameRanksOnceMore) {
  Simulation simulation({.ranks = 3, .network = {.link = kLink}, .no_storage = true});
  simulation.run([](Communicator& comm) {
    auto beside = comm.split(0, comm.rank());
    ASSERT_TRUE(beside.has_value());
    // Small messages have contents even without storage, in two groups at once.
    std::vector<float> one(10, 1);
    std::vector<float> other(10, 2);
    Pending first = start_all_reduce({one.data(), one.size()}, {one.data(), one.size()}, *beside);
    all_reduce({other.data(), other.size()}, comm);
    first.wait();
    EXPECT_EQ(one, std::vector<float>(10, 3));
    EXPECT_EQ(other, std::vector<float>(10, 6));
  });
}

// Large collectives write nothing: they only take their time.
TEST(Simulation, LargeCollectivesAreSimulated) {
  constexpr std::size_t kMany = 1 << 20;
  Simulation simulation({.ranks = 2,
                         .network = {.link = kLink},
                         .no_storage = true,
                         .memory_costs = {.bytes_per_second = 1e9}});
  simulation.run([](Communicator& comm) {
    std::vector<float> parts(kMany, 1);
    std::vector<float> sums(kMany / 2, 7);
    reduce_scatter({parts.data(), parts.size()}, {sums.data(), sums.size()}, comm);
    EXPECT_EQ(sums, std::vector<float>(kMany / 2, 7));
  });
  // A copy of half of it, and a sum of two halves.
  EXPECT_GE(simulation.end(), static_cast<Nanoseconds>(kMany / 2 * sizeof(float) * (2 + 3)));
}

}  // namespace
}  // namespace plait::comm::modelled
