// Records of started collectives in a trace. Their behaviour is tested in conformance/.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "plait/all_to_all_rows.h"
#include "plait/collectives.h"
#include "trace/pack.h"

namespace plait {
namespace {

std::vector<trace::Record> records_of(const trace::RankRecords& all, trace::Kind kind,
                                      const std::string& label) {
  std::vector<trace::Record> found;
  for (const trace::Record& record : all.records) {
    if (record.kind == kind && all.labels[record.label] == label) found.push_back(record);
  }
  return found;
}

TEST(PendingTrace, HasAFlightForEachThatIsStarted) {
  constexpr int kWorld = 2;
  constexpr int kStarted = 5;
  Trace trace(0);  // both ranks', which are threads
  CommunicatorOptions options;
  options.trace = &trace;
  const base::Nanoseconds before = base::now();
  run_in_threads(
      kWorld,
      [](Communicator& comm) {
        std::vector<float> data(1000, 1.0F);
        std::vector<float> more(1000);
        const Shard shard = balanced_shard(1000, comm.rank(), kWorld);
        const Elements all = {data.data(), data.size()};
        const Elements mine = {more.data(), shard.count};
        all_reduce(all, comm);
        std::vector<Pending> pending;
        pending.reserve(kStarted + 6);
        for (int i = 0; i < kStarted; ++i) pending.push_back(start_all_reduce(all, all, comm));
        pending.push_back(start_barrier(comm));
        pending.push_back(start_broadcast(all, 0, comm));
        pending.push_back(start_reduce_scatter(all, mine, comm));
        pending.push_back(start_all_gather(mine, all, comm));
        pending.push_back(start_all_to_all(all, {more.data(), more.size()}, comm));
        ReceivedRows received;
        pending.push_back(start_all_to_all_rows(ConstTensorView::of(data.data(), 2, 500),
                                                std::vector<std::int64_t>{1, 1}, received, comm));
        for (Pending& one : pending) one.wait();
      },
      options);
  const trace::RankRecords all = trace::unpack(trace.pack());
  EXPECT_EQ(records_of(all, trace::Kind::span, "all_reduce").size(), kWorld);
  const auto reduced = records_of(all, trace::Kind::flight, "all_reduce");
  EXPECT_EQ(reduced.size(), kWorld * kStarted);
  for (const trace::Record& record : reduced) {
    EXPECT_EQ(record.lane, Lane::comm);
    EXPECT_EQ(record.args.bytes, 4000);
    EXPECT_GE(record.begin, before);
    EXPECT_LE(record.begin, record.end);
    EXPECT_LE(record.end, base::now());
  }
  for (const char* label :
       {"barrier", "broadcast", "reduce_scatter", "all_gather", "all_to_all", "all_to_all_rows"}) {
    EXPECT_EQ(records_of(all, trace::Kind::flight, label).size(), kWorld) << label;
  }
}

// From its start, not from when those before it are done: that time is a user's to hide, too.
TEST(PendingTrace, BeginsWhereItIsStarted) {
  Trace trace(0);
  CommunicatorOptions options;
  options.trace = &trace;
  run_in_threads(
      2,
      [](Communicator& comm) {
        float one = 1;
        if (comm.rank() == 1) {
          // Rank 0 has started both before this rank starts any.
          auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = 8});
          mailbox->wait_arrived(0, 0, {});
          mailbox->release(0, 0);
          barrier(comm);
          all_reduce({&one, 1}, comm);
          return;
        }
        auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = 8});
        Pending first = start_barrier(comm);
        Pending second = start_all_reduce({&one, 1}, {&one, 1}, comm);
        EXPECT_FALSE(first.done());
        mailbox->post(1, 0, {}, 0);
        second.wait();
      },
      options);
  const trace::RankRecords all = trace::unpack(trace.pack());
  const auto first = records_of(all, trace::Kind::flight, "barrier");
  const auto second = records_of(all, trace::Kind::flight, "all_reduce");
  ASSERT_EQ(first.size(), 1U);
  ASSERT_EQ(second.size(), 1U);
  EXPECT_LT(second[0].begin, first[0].end);
}

TEST(PendingTrace, EndsWhereItIsAbandoned) {
  Trace trace(0);
  CommunicatorOptions options;
  options.trace = &trace;
  run_in_threads(
      2,
      [](Communicator& comm) {
        std::optional<Communicator> part = comm.split(0, comm.rank());
        if (comm.rank() == 0) {
          const Pending never = start_barrier(*part);
          part.reset();
        }
        barrier(comm);
      },
      options);
  const trace::RankRecords all = trace::unpack(trace.pack());
  EXPECT_EQ(records_of(all, trace::Kind::flight, "barrier").size(), 1U);
}

// A trace that is taken away may end, also before what was started while it was there.
TEST(SetTrace, TurnsRecordingOnAndOff) {
  run_in_threads(2, [](Communicator& comm) {
    std::vector<float> data(1000, 1.0F);
    const Elements all = {data.data(), data.size()};
    all_reduce(all, comm);
    std::optional<Pending> under_way;
    {
      Trace trace(comm.rank());
      comm.set_trace(&trace);
      EXPECT_EQ(comm.trace(), &trace);
      all_reduce(all, comm);
      under_way.emplace(start_all_reduce(all, all, comm));
      comm.set_trace(nullptr);
      const trace::RankRecords records = trace::unpack(trace.pack());
      EXPECT_EQ(records_of(records, trace::Kind::span, "all_reduce").size(), 1U);
      // One of the ranks may be done at once.
      EXPECT_LE(records_of(records, trace::Kind::flight, "all_reduce").size(), 1U);
    }
    under_way->wait();
    all_reduce(all, comm);
    EXPECT_EQ(comm.trace(), nullptr);
  });
}

}  // namespace
}  // namespace plait
