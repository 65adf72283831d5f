// Calls that the collectives refuse.
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "comm/collectives/vector.h"
#include "comm/core/wait.h"
#include "comm/session/state.h"
#include "conformance/collectives.h"
#include "plait/collectives.h"

namespace plait::conformance {

TEST_P(CollectivesConformance, RefusesBadArgumentsAndGoesOn) {
  run([&](Communicator& comm) {
    std::vector<float> data(100);
    const auto refuse = [&](const auto& call) {
      return expect_error(Code::invalid_argument, call);
    };
    refuse([&] { broadcast({data.data(), 100}, world(), comm); });
    refuse([&] { broadcast({nullptr, 100, Dtype::f32}, 0, comm); });
    refuse([&] { all_reduce({data.data(), 100}, {data.data(), 99}, comm); });
    const Error none = refuse([&] { all_reduce({data.data(), 1, static_cast<Dtype>(4)}, comm); });
    EXPECT_STREQ(none.what(), "all_reduce: the input has the dtype 4, which is none");
    refuse([&] { all_reduce({data.data(), 50}, {data.data() + 1, 50}, comm); });
    refuse(
        [&] { all_reduce({data.data(), 50, Dtype::bf16}, {data.data(), 50, Dtype::f16}, comm); });
    const std::vector<std::size_t> bad(static_cast<std::size_t>(world()) + 1, 1);
    refuse([&] { all_gather({data.data(), 1}, {data.data() + 50, 2}, comm, bad); });
    refuse([&] { all_gather({data.data(), 98}, {data.data(), 100}, comm); });
    refuse([&] { reduce_scatter({data.data(), 100}, {data.data(), 3}, comm); });
    barrier(comm);
  });
}

TEST_P(CollectivesConformance, RefusesWhatTheCpuCannotReach) {
  run([&](Communicator& comm) {
    std::vector<float> data(100, 1.0F);
    const ConstElements in = {data.data(), 50};
    const Elements out = {data.data() + 50, 50};
    const Elements far = {data.data(), 50, Device::cuda(2)};
    const auto refusal = [&](const auto& call) {
      return std::string(expect_error(Code::invalid_argument, call).what());
    };
    const std::string ending = " is on cuda:2, whose memory this build cannot reach";
    EXPECT_EQ(refusal([&] { broadcast(far, 0, comm); }), "broadcast: the data" + ending);
    EXPECT_EQ(refusal([&] { all_reduce(far, comm); }), "all_reduce: the input" + ending);
    EXPECT_EQ(refusal([&] { all_reduce(in, far, comm); }), "all_reduce: the output" + ending);
    EXPECT_EQ(refusal([&] { all_gather(far, out, comm); }), "all_gather: the shard" + ending);
    EXPECT_EQ(refusal([&] { start_reduce_scatter(far, out, comm); }),
              "reduce_scatter: the input" + ending);
    EXPECT_EQ(refusal([&] { all_to_all(in, far, comm); }), "all_to_all: the output" + ending);
    const Stream stream = {.handle = data.data()};
    EXPECT_EQ(refusal([&] { all_reduce(in, out, comm, stream); }),
              "all_reduce: a stream was given for elements on the cpu, which has none");
    for (const auto& call : std::initializer_list<std::function<void()>>{
             [&] { broadcast(out, 0, comm, stream); },
             [&] { all_gather(in, out, comm, {}, stream); },
             [&] { reduce_scatter(in, out, comm, {}, stream); },
             [&] { all_to_all(in, out, comm, {}, stream); },
             [&] { start_all_reduce(in, out, comm, stream); }}) {
      EXPECT_TRUE(contains(refusal(call), "a stream was given")) << "another refusal";
    }
    barrier(comm);
    EXPECT_EQ(data, std::vector<float>(100, 1.0F));
  });
}

// The ranks make the same call but divide it differently, as different builds might.
TEST_P(CollectivesConformance, RefuseChunksOfOtherSizesThanTheirOwn) {
  run([&](Communicator& comm) {
    if (world() == 1) return;
    constexpr std::size_t kCount = 30'000;
    comm::LaneCapacity capacity = comm.state().lane_capacity();
    if (comm.rank() == 0) capacity.chunk_bytes /= 2;
    const comm::Shards shards = comm::Shards::whole(kCount, Dtype::f32, capacity);
    const std::vector<float> mine(kCount, 1.0F);
    std::vector<float> all(kCount);
    const comm::VectorPartials partials(shards, comm.rank(), {mine.data(), kCount},
                                        {all.data(), kCount});
    const Error error = expect_error(Code::mismatch, [&] {
      barrier(comm);  // or a rank that still connects might get the error there
      comm::Lanes& lanes = comm.state().lanes();
      comm::ReduceFlow flow(lanes, lanes.apart(), partials, {.wire = Dtype::f32});
      lanes.begin(comm.state().begin_call({.operation = Operation::all_reduce}));
      flow.begin();
      flow.ready(comm::ReduceFlow::kAll);
      const auto step = [&] {
        flow.step();
        comm.state().mailbox().help();
        return flow.done();
      };
      comm::wait_until(
          comm.state().group(), step, [&] { return comm.state().mailbox().take_due(); },
          [&] { return flow.awaited(); });
    });
    const std::size_t chunk_bytes = shards.pieces(0).count(0) * sizeof(float);
    const std::string larger = std::to_string(chunk_bytes << (comm.rank() == 0 ? 1 : 0));
    const std::string smaller = std::to_string(chunk_bytes >> (comm.rank() == 0 ? 0 : 1));
    const std::string said = error.what();
    EXPECT_TRUE(contains(said, "all_reduce: rank ")) << said;
    EXPECT_TRUE(contains(said, " disagree on the size of a chunk: ")) << said;
    EXPECT_TRUE(contains(said, larger) && contains(said, smaller)) << said;
  });
}

// Sizes are computed before they are compared.
TEST_P(CollectivesConformance, RefusesCountsThatWrapAround) {
  run([&](Communicator& comm) {
    std::vector<float> data(100);
    const auto refusal = [&](const auto& call) {
      return std::string(expect_error(Code::invalid_argument, call).what());
    };
    for (const std::size_t count : {SIZE_MAX, SIZE_MAX / 4 + 2, std::size_t{1} << 60}) {
      EXPECT_EQ(refusal([&] { all_reduce({data.data(), count}, comm); }),
                "all_reduce: the input has " + std::to_string(count) +
                    " elements, more than memory can hold");
      EXPECT_EQ(refusal([&] { broadcast({data.data(), count}, 0, comm); }),
                "broadcast: the data has " + std::to_string(count) +
                    " elements, more than memory can hold");
    }
    if (world() == 1) return;
    // The sum of all but the last is -1, so the total wraps around to 99.
    std::vector<std::size_t> counts(static_cast<std::size_t>(world()), 0);
    counts.front() = SIZE_MAX;
    counts.back() = 100;
    const std::size_t own = counts[static_cast<std::size_t>(comm.rank())];
    const std::string said =
        refusal([&] { all_gather({data.data(), own}, {data.data(), 99}, comm, counts); });
    EXPECT_EQ(said, comm.rank() == 0
                        ? "all_gather: the shard has 18446744073709551615 elements, more than "
                          "memory can hold"
                        : "all_gather: the counts add up to more than can be counted, not to the "
                          "99 elements");
  });
}

}  // namespace plait::conformance
