// The ends of collectives that are dropped or abandoned, or whose peers leave first.
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "conformance/collectives.h"
#include "plait/collectives.h"

namespace plait::conformance {

TEST_P(CollectivesConformance, RefusesToSpeakOfAnAbandonedCall) {
  run([&](Communicator& comm) {
    std::vector<float> data(10);
    std::optional<Communicator> part = comm.split(0, comm.rank());
    Pending finished = start_all_reduce({data.data(), 10}, {data.data(), 10}, *part);
    finished.wait();
    part.reset();
    EXPECT_TRUE(finished.done());
    barrier(comm);
  });
}

// The header promises this for a Pending that outlives its communicator.
TEST_P(CollectivesConformance, AbandonsWhatOutlivesItsCommunicator) {
  if (world() == 1) return;  // a single rank is done as soon as it starts
  run([&](Communicator& comm) {
    std::optional<Communicator> part = comm.split(0, comm.rank());
    std::vector<float> data(10, 2.0F);
    barrier(comm);
    if (comm.rank() == 0) {
      // The others never join.
      auto pending =
          std::make_unique<Pending>(start_all_reduce({data.data(), 10}, {data.data(), 10}, *part));
      Pending behind = start_barrier(*part);
      EXPECT_FALSE(pending->done());
      part.reset();
      for (Pending* one : {&*pending, &behind}) {
        for (const auto& call : std::initializer_list<std::function<void()>>{
                 [&] { static_cast<void>(one->done()); }, [&] { one->progress(); },
                 [&] { one->wait(); }}) {
          expect_error(Code::invalid_argument, "communicator was destroyed before it was done",
                       call);
        }
      }
      pending.reset();
      EXPECT_EQ(data, std::vector<float>(10, 2.0F));
    }
    barrier(comm);
  });
}

// The destructor waits, as for a successful collective, and drops the error.
TEST_P(CollectivesConformance, LosesTheErrorOfWhatIsDropped) {
  if (world() == 1) return;
  run([&](Communicator& comm) {
    std::optional<Communicator> part = comm.split(0, comm.rank());
    std::vector<float> data(10, 2.0F);
    if (comm.rank() == 0) {
      barrier(comm);  // the others have started the collective that this rank never joins
      part.reset();
    } else {
      {
        const Pending dropped = start_all_reduce({data.data(), 10}, {data.data(), 10}, *part);
        barrier(comm);
      }
      expect_error(Code::peer_lost, "left", [&] { barrier(*part); });
    }
    barrier(comm);
  });
}

// A root may leave before any other rank has read its data.
TEST_P(CollectivesConformance, BringsWhatALeavingRankHasSent) {
  if (world() == 1) return;
  CommunicatorOptions options;
  if (GetParam().maker.one_host) options.link = parse_link("100ms");
  GetParam().maker.run(
      world(),
      [&](Communicator& comm) {
        for (const bool polls : {false, true}) {
          std::optional<Communicator> part = comm.split(0, comm.rank());
          std::vector<float> data(20000, comm.rank() == 0 ? 3.0F : 0.0F);
          if (polls) {
            Pending pending = start_broadcast({data.data(), data.size()}, 0, *part);
            while (!pending.done()) std::this_thread::yield();
          } else {
            broadcast({data.data(), data.size()}, 0, *part);
          }
          part.reset();
          EXPECT_EQ(data, std::vector<float>(20000, 3.0F));
        }
        barrier(comm);
      },
      options);
}

TEST_P(CollectivesConformance, FinishesWhatIsDropped) {
  run([&](Communicator& comm) {
    std::vector<float> data(70000, 1.0F);
    {
      Pending dropped =
          start_all_reduce({data.data(), data.size()}, {data.data(), data.size()}, comm);
    }
    EXPECT_EQ(data.front(), static_cast<float>(world()));
    EXPECT_EQ(data.back(), static_cast<float>(world()));
  });
}

}  // namespace plait::conformance
