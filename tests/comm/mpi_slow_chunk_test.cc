// Started by mpirun. A chunk may be on its way for long when later, shorter messages of its sender
// are here.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait::conformance {
namespace {

// Longer than any rule of thumb about how long a chunk may take.
constexpr auto kPause = std::chrono::seconds(3);

// The root of a broadcast is done when it has posted its chunks. It then begins to make a mailbox,
// and calls MPI no more for a while. The other rank has the message about the mailbox when it looks
// for the chunk, and the chunk later.
TEST(MpiSlowChunk, IsNoMismatch) {
  // Within a host Open MPI then brings a chunk of more than a few KiB only while its sender calls
  // MPI.
  ::setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);
  std::atomic<bool> pauses{false};
  const auto hook = [&] {
    if (pauses.exchange(false)) std::this_thread::sleep_for(kPause);
  };
  const auto body = [&](Communicator& comm) {
    if (comm.world() == 1) return;
    std::vector<float> data(6000, static_cast<float>(comm.rank() + 1));
    barrier(comm);
    if (comm.rank() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    broadcast({data.data(), data.size()}, 0, comm);
    EXPECT_EQ(data, std::vector<float>(data.size(), 1.0F));
    pauses = comm.rank() == 0;
    const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = 64});
    pauses = false;
    barrier(comm);
  };
  run_under_mpi(place_from_environment().world, body, {.interrupted = hook});
}

}  // namespace
}  // namespace plait::conformance
