#include "conformance/collectives.h"

#include <cstring>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "comm/flow/chunks.h"
#include "conformance/contributions.h"
#include "plait/collectives.h"
#include "tensor/reduce.h"

namespace plait::conformance {

// A program may link all suites and run only some.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CollectivesConformance);

namespace {

constexpr Dtype kDtypes[] = {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::s8};

}  // namespace

TEST_P(CollectivesConformance, BarrierHoldsEverybodyBack) {
  run([&](Communicator& comm) {
    // After the barrier every rank must find the marks of all others.
    const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = 8});
    std::this_thread::sleep_for(std::chrono::milliseconds(comm.rank() * 3));
    for (int peer = 0; peer < world(); ++peer) mailbox->post(peer, 0, {}, 0);
    barrier(comm);
    for (int peer = 0; peer < world(); ++peer) {
      // Over an emulated link the arrival times are not known.
      if (GetParam().maker.link.empty() && GetParam().maker.sees_calls) {
        EXPECT_TRUE(mailbox->arrived(peer, 0, {})) << peer;
      }
      mailbox->wait_arrived(peer, 0, {});
      mailbox->release(peer, 0);
    }
  });
}

TEST_P(CollectivesConformance, AllReduceSumsInRankOrder) {
  run([&](Communicator& comm) {
    for (const Dtype dtype : kDtypes) {
      for (const std::size_t count : kSizes) {
        const auto mine = contribution(comm.rank(), count, dtype);
        Guarded out(count, dtype);
        all_reduce({mine.data(), count, dtype}, {out.data(), count, dtype}, comm);
        EXPECT_TRUE(out.contents() == sum_of_all(world(), count, dtype))
            << name(dtype) << " " << count;
        auto in_place = mine;
        all_reduce({in_place.data(), count, dtype}, comm);
        EXPECT_TRUE(in_place == out.contents()) << name(dtype) << " " << count << " in place";
      }
    }
  });
}

// Data that fits no cache is written past the caches: halves for two ranks, and thirds for three.
TEST_P(CollectivesConformance, SumsAndMovesWhatNoCacheHolds) {
  run([&](Communicator& comm) {
    constexpr std::size_t kCount = 3 * (comm::kLargeStreamBytes / sizeof(float)) + 5;
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      const auto mine = contribution(comm.rank(), kCount, dtype);
      const auto sum = sum_of_all(world(), kCount, dtype);
      Guarded out(kCount, dtype);
      all_reduce({mine.data(), kCount, dtype}, {out.data(), kCount, dtype}, comm);
      EXPECT_TRUE(out.contents() == sum) << name(dtype);
      auto in_place = mine;
      all_reduce({in_place.data(), kCount, dtype}, comm);
      EXPECT_TRUE(in_place == sum) << name(dtype) << " in place";
      const Shard shard = balanced_shard(kCount, comm.rank(), world());
      Guarded all(kCount, dtype);
      all_gather({sum.data() + shard.offset * size_of(dtype), shard.count, dtype},
                 {all.data(), kCount, dtype}, comm);
      EXPECT_TRUE(all.contents() == sum) << name(dtype) << " gathered";
    }
  });
}

TEST_P(CollectivesConformance, ReduceScatterGivesEachItsShard) {
  run([&](Communicator& comm) {
    for (const Dtype dtype : kDtypes) {
      for (const std::size_t count : kSizes) {
        const auto all = contribution(comm.rank(), count, dtype);
        const Shard shard = balanced_shard(count, comm.rank(), world());
        Guarded mine(shard.count, dtype);
        reduce_scatter({all.data(), count, dtype}, {mine.data(), shard.count, dtype}, comm);
        const auto sum = sum_of_all(world(), count, dtype);
        EXPECT_TRUE(mine.contents() == slice(sum, shard.offset, shard.count, dtype))
            << name(dtype) << " " << count;
      }
    }
  });
}

TEST_P(CollectivesConformance, AllGatherCollectsTheShards) {
  run([&](Communicator& comm) {
    for (const Dtype dtype : kDtypes) {
      for (const std::size_t count : kSizes) {
        const auto whole = contribution(42, count, dtype);
        const Shard shard = balanced_shard(count, comm.rank(), world());
        const auto mine = slice(whole, shard.offset, shard.count, dtype);
        Guarded all(count, dtype);
        all_gather({mine.data(), shard.count, dtype}, {all.data(), count, dtype}, comm);
        EXPECT_TRUE(all.contents() == whole) << name(dtype) << " " << count;
      }
    }
  });
}

TEST_P(CollectivesConformance, TakesUnevenShards) {
  run([&](Communicator& comm) {
    // Rank r owns r * 9001 elements; rank 0 none.
    std::vector<std::size_t> counts;
    std::size_t total = 0;
    std::size_t offset = 0;
    for (int rank = 0; rank < world(); ++rank) {
      if (rank == comm.rank()) offset = total;
      counts.push_back(static_cast<std::size_t>(rank) * 9001);
      total += counts.back();
    }
    const std::size_t own = counts[static_cast<std::size_t>(comm.rank())];
    const auto part = contribution(comm.rank(), total, Dtype::bf16);
    Guarded sum(own, Dtype::bf16);
    reduce_scatter({part.data(), total, Dtype::bf16}, {sum.data(), own, Dtype::bf16}, comm, counts);
    EXPECT_TRUE(sum.contents() ==
                slice(sum_of_all(world(), total, Dtype::bf16), offset, own, Dtype::bf16));
    Guarded all(total, Dtype::bf16);
    all_gather({sum.data(), own, Dtype::bf16}, {all.data(), total, Dtype::bf16}, comm, counts);
    EXPECT_TRUE(all.contents() == sum_of_all(world(), total, Dtype::bf16));
  });
}

TEST_P(CollectivesConformance, WorksInPlace) {
  run([&](Communicator& comm) {
    constexpr std::size_t kCount = 50001;
    const Shard shard = balanced_shard(kCount, comm.rank(), world());
    auto data = contribution(comm.rank(), kCount, Dtype::f32);
    auto* floats = reinterpret_cast<float*>(data.data());
    reduce_scatter({floats, kCount}, {floats + shard.offset, shard.count}, comm);
    all_gather({floats + shard.offset, shard.count}, {floats, kCount}, comm);
    EXPECT_TRUE(data == sum_of_all(world(), kCount, Dtype::f32));
  });
}

TEST_P(CollectivesConformance, BroadcastFromAnyRoot) {
  run([&](Communicator& comm) {
    for (int root = 0; root < world(); ++root) {
      for (const std::size_t count : kSizes) {
        auto data = contribution(comm.rank() == root ? 5 : 6, count, Dtype::f16,
                                 static_cast<unsigned>(root));
        broadcast({data.data(), count, Dtype::f16}, root, comm);
        EXPECT_TRUE(data == contribution(5, count, Dtype::f16, static_cast<unsigned>(root)))
            << root << " " << count;
      }
    }
  });
}

TEST_P(CollectivesConformance, AllToAllTransposes) {
  run([&](Communicator& comm) {
    // Rank a sends b (a * world + b) * 1001 elements: uneven, and none from 0 to 0.
    const auto size = [&](int from, int to) {
      return static_cast<std::size_t>(from * world() + to) * 1001;
    };
    std::vector<std::size_t> to;
    std::vector<std::size_t> from;
    std::vector<std::byte> send;
    std::vector<std::byte> expected;
    for (int peer = 0; peer < world(); ++peer) {
      to.push_back(size(comm.rank(), peer));
      from.push_back(size(peer, comm.rank()));
      const auto out = contribution(comm.rank(), to.back(), Dtype::s8, static_cast<unsigned>(peer));
      const auto in =
          contribution(peer, from.back(), Dtype::s8, static_cast<unsigned>(comm.rank()));
      send.insert(send.end(), out.begin(), out.end());
      expected.insert(expected.end(), in.begin(), in.end());
    }
    Guarded received(expected.size(), Dtype::s8);
    all_to_all({send.data(), send.size(), Dtype::s8}, {received.data(), expected.size(), Dtype::s8},
               comm, {.send = to, .receive = from});
    EXPECT_TRUE(received.contents() == expected);
  });
}

TEST_P(CollectivesConformance, RunsWhileTheCallerDoesOtherThings) {
  run([&](Communicator& comm) {
    constexpr std::size_t kCount = 300000;
    const auto mine = contribution(comm.rank(), kCount, Dtype::f32);
    std::vector<std::byte> sum(mine.size());
    auto broadcasted = contribution(comm.rank() == 0 ? 9 : 8, 1000, Dtype::f32);
    Pending reducing =
        start_all_reduce({mine.data(), kCount, Dtype::f32}, {sum.data(), kCount, Dtype::f32}, comm);
    Pending spreading = start_broadcast({broadcasted.data(), 1000, Dtype::f32}, 0, comm);
    Pending meeting = start_barrier(comm);
    // the last one is done, so those before it are done too
    while (!meeting.done()) std::this_thread::yield();
    EXPECT_TRUE(reducing.done());
    EXPECT_TRUE(spreading.done());
    reducing.wait();
    EXPECT_TRUE(sum == sum_of_all(world(), kCount, Dtype::f32));
    EXPECT_TRUE(broadcasted == contribution(9, 1000, Dtype::f32));
    // A blocking call waits for those that were started before.
    Pending late =
        start_all_reduce({mine.data(), kCount, Dtype::f32}, {sum.data(), kCount, Dtype::f32}, comm);
    barrier(comm);
    EXPECT_TRUE(late.done());
  });
}

TEST_P(CollectivesConformance, ReadsWhatTheCallBeforeItWrote) {
  run([&](Communicator& comm) {
    constexpr std::size_t kCount = 90001;
    const Shard shard = balanced_shard(kCount, comm.rank(), world());
    const auto part = contribution(comm.rank(), kCount, Dtype::f32);
    std::vector<float> mine(shard.count, -7.0F);
    std::vector<std::byte> all(part.size());
    Pending first =
        start_reduce_scatter({part.data(), kCount, Dtype::f32}, {mine.data(), mine.size()}, comm);
    all_gather({mine.data(), mine.size()}, {all.data(), kCount, Dtype::f32}, comm);
    EXPECT_TRUE(all == sum_of_all(world(), kCount, Dtype::f32));
  });
}

TEST_P(CollectivesConformance, WritesNothingAfterAFailure) {
  run([&](Communicator& comm) {
    const float mine = 5;
    std::vector<float> all(static_cast<std::size_t>(world()), 0.0F);
    try {
      barrier(comm);  // all are connected; a rank that leaves it late already gets the abort
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::peer_lost) << error.what();
    }
    comm.abort("the test says so");
    expect_error(Code::peer_lost, [&] { all_gather({&mine, 1}, {all.data(), all.size()}, comm); });
    EXPECT_EQ(all, std::vector<float>(all.size(), 0.0F));
  });
}

TEST_P(CollectivesConformance, MayTakeLongerThanTheDeadlineWhileItMoves) {
  if (world() != 2) return;
  CommunicatorOptions options;
  options.link = parse_link("0.6mb/s");  // 1.2 MB take twice the deadline
  GetParam().maker.run(
      world(),
      [&](Communicator& comm) {
        std::vector<float> data(300000, 1.0F);
        barrier(comm);
        set_timeout(comm, std::chrono::milliseconds(1000));
        all_reduce({data.data(), data.size()}, comm);
        EXPECT_EQ(data.back(), 2.0F);
      },
      options);
}

TEST_P(CollectivesConformance, NoticesDisagreement) {
  if (world() == 1) return;
  struct Disagreement {
    const char* field;
    std::function<void(Communicator&, float* data, bool odd_one)> call;
  };
  const Disagreement disagreements[] = {
      {"elements",
       [](Communicator& c, float* data, bool odd) { all_reduce({data, odd ? 100U : 120U}, c); }},
      {"elements",
       [](Communicator& c, float* data, bool odd) { all_reduce({data, odd ? 0U : 120U}, c); }},
      {"dtype", [](Communicator& c, float* data,
                   bool odd) { all_reduce({data, 100, odd ? Dtype::bf16 : Dtype::f16}, c); }},
      {"root",
       [](Communicator& c, float* data, bool odd) { broadcast({data, 100}, odd ? 0 : 1, c); }},
      {"operator", [](Communicator& c, float* data,
                      bool odd) { odd ? barrier(c) : broadcast({data, 100}, 0, c); }},
  };
  for (const Disagreement& disagreement : disagreements) {
    run([&](Communicator& comm) {
      std::vector<float> own(200);
      const bool odd_one = comm.rank() == world() - 1;
      try {
        barrier(comm);  // otherwise a rank that is still connecting might get the abort there
        // Ranks that only see one another's chunks may find nothing to compare, and wait.
        if (!GetParam().maker.sees_calls) set_timeout(comm, std::chrono::milliseconds(700));
        for (;;) {  // a rank whose part is done early gets the abort in its next call
          disagreement.call(comm, own.data(), odd_one);
        }
      } catch (const Error& error) {
        if (GetParam().maker.sees_calls) {
          EXPECT_EQ(error.code(), Code::mismatch) << error.what();
        } else {
          EXPECT_TRUE(error.code() == Code::mismatch || error.code() == Code::timeout)
              << error.what();
        }
        if (error.code() == Code::mismatch) {
          EXPECT_TRUE(contains(error.what(), disagreement.field)) << error.what();
        }
      }
    });
  }
}

TEST_P(CollectivesConformance, SurvivesARandomProgram) {
  run([&](Communicator& comm) {
    std::minstd_rand same(2026);                                        // for what all ranks do
    std::minstd_rand own(static_cast<unsigned>(comm.rank()) * 77 + 5);  // for when they do it
    std::deque<Pending> pending;
    std::deque<std::vector<std::byte>> outs;
    std::vector<std::vector<std::byte>> expected;
    for (int step = 0; step < 40; ++step) {
      const auto count = static_cast<std::size_t>(same() % 30000);
      const Dtype dtype = kDtypes[same() % 4];
      const auto seed = static_cast<unsigned>(same() % 1000);
      if (own() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 500));
      const auto kind = same() % 4;
      const Shard shard = balanced_shard(count, comm.rank(), world());
      outs.push_back(contribution(comm.rank(), count, dtype, seed));
      expected.push_back(sum_of_all(world(), count, dtype, seed));
      const Elements data = {outs.back().data(), count, dtype};
      const Elements own_shard = {outs.back().data() + shard.offset * size_of(dtype), shard.count,
                                  dtype};
      if (kind == 0) {
        pending.push_back(start_all_reduce(data, data, comm));
      } else if (kind == 1) {
        all_reduce(data, comm);
      } else if (kind == 2) {
        // The second reads what the first, perhaps not started yet, will write.
        pending.push_back(start_reduce_scatter(data, own_shard, comm));
        pending.push_back(start_all_gather(own_shard, data, comm));
      } else {
        const int root = static_cast<int>(seed) % world();
        expected.back() = contribution(root, count, dtype, seed);
        barrier(comm);
        broadcast(data, root, comm);
      }
      if (own() % 3 == 0 && !pending.empty()) pending.front().progress();
    }
    for (Pending& one : pending) one.wait();
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(outs[i] == expected[i]) << "step " << i;
  });
}

}  // namespace plait::conformance
