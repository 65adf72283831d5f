// Started by mpirun: a program that uses MPI itself hands its communicators to plait. Its first
// argument is the level of threads with which it starts MPI.
#include "plait/mpi.h"

#include <gtest/gtest.h>
#include <mpi.h>
#include <sched.h>
#include <sys/mount.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/host.h"
#include "comm/session/state.h"
#include "comm/split_comm.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait {
namespace {

const CommunicatorOptions kByMpi = {.transport = "mpi"};

int level() {
  int level = 0;
  MPI_Query_thread(&level);
  return level;
}

TEST(FromMpi, ConnectsTheWholeWorld) {
  Communicator comm = from_mpi(MPI_COMM_WORLD);
  EXPECT_EQ(comm.transport(), comm.world() == 1 ? "threads" : "shm");
  expect_group_of(comm, MPI_COMM_WORLD);
}

TEST(FromMpi, ConnectsHalvesAtTheSameTimeInAnyOrder) {
  const SplitComm half(my_rank() % 2, -my_rank());
  Communicator all = from_mpi(MPI_COMM_WORLD);
  Communicator comm = from_mpi(half.get());
  expect_group_of(comm, half.get());
  expect_group_of(all, MPI_COMM_WORLD);
  barrier(all);
}

TEST(FromMpi, ConnectsAProcessAlone) {
  Communicator comm = from_mpi(MPI_COMM_SELF);
  expect_group_of(comm, MPI_COMM_SELF);
}

TEST(FromMpi, ConnectsOverTcp) {
  Communicator comm = from_mpi(MPI_COMM_WORLD, {.transport = "tcp"});
  EXPECT_EQ(comm.transport(), "tcp");
  expect_group_of(comm, MPI_COMM_WORLD);
}

// No variable gives the number of hosts; from_mpi() counts them.
TEST(FromMpi, FindsTheHosts) {
  if (size_of(MPI_COMM_WORLD) < 3) return;  // two hosts, one with two ranks
  ::setenv("PLAIT_HOST", my_rank() == 1 ? "one" : "other", 1);
  Communicator comm = from_mpi(MPI_COMM_WORLD);
  ::unsetenv("PLAIT_HOST");
  EXPECT_EQ(comm.transport(), "tcp");
  EXPECT_EQ(comm.state().hosts(), 2);
  expect_group_of(comm, MPI_COMM_WORLD);
}

// The program's own collectives continue meanwhile, also one that began before.
TEST(FromMpi, LeavesTheCommunicatorToTheProgram) {
  int mine = 1;
  int sum = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
  Communicator comm = from_mpi(MPI_COMM_WORLD);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  EXPECT_EQ(sum, comm.world());
  expect_group_of(comm, MPI_COMM_WORLD);
}

TEST(FromMpi, RefusesWhatIsNoGroupOfRanks) {
  const auto refusal = [](MPI_Comm comm, const CommunicatorOptions& options) {
    return std::string(
        expect_error(Code::invalid_argument, [&] { from_mpi(comm, options); }).what());
  };
  EXPECT_EQ(refusal(MPI_COMM_NULL, {}),
            "from_mpi: this process is in no communicator: MPI_COMM_NULL");
  EXPECT_EQ(refusal(MPI_COMM_WORLD, {.place = Place{.rank = 0, .world = 1}}),
            "from_mpi: MPI says where the ranks are: give no place and no all_gather");
  if (size_of(MPI_COMM_WORLD) == 1) return;
  const SplitComm half(my_rank() % 2, 0);
  MPI_Comm both = MPI_COMM_NULL;
  MPI_Intercomm_create(half.get(), 0, MPI_COMM_WORLD, 1 - my_rank() % 2, 7, &both);
  EXPECT_EQ(refusal(both, {}), "from_mpi: an intercommunicator has two groups; merge them before");
  MPI_Comm_free(&both);
}

TEST(FromMpi, WaitsForLateRanksUntilTheDeadline) {
  if (size_of(MPI_COMM_WORLD) == 1) return;
  const SplitComm all(0, 0);
  const auto connect = [&] {
    return from_mpi(all.get(), {.timeout = std::chrono::milliseconds(500)});
  };
  if (my_rank() != 0) {
    const Error error = expect_error(Code::timeout, connect);
    EXPECT_EQ(error.what(), "from_mpi: rank " + std::to_string(my_rank()) +
                                " has waited 500 ms for the other ranks of its " +
                                std::to_string(size_of(all.get())) + ": not all have called it");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  // The others don't wait for the late rank to finish either.
  if (my_rank() == 0) expect_error(Code::timeout, connect);
  MPI_Barrier(MPI_COMM_WORLD);
}

// The description of a communicator that from_mpi() gives to plait, and whether its last all-gather
// has ended. From then on the ranks connect with the addresses that they have received. `at_end` is
// called at the end of each.
class Gathering {
 public:
  explicit Gathering(MPI_Comm comm, std::function<void()> at_end = {})
      : at_end_(std::move(at_end)) {
    ranks_.rank = rank_in(comm);
    ranks_.world = size_of(comm);
    ranks_.handle = MPI_Comm_c2f(comm);
    ranks_.begin_all_gather = [this, comm](const char* mine, char* all, int bytes) {
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Iallgather(mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, comm, &request);
      has_ended_ = false;
      return [this, request]() mutable {
        int ended = 0;
        MPI_Test(&request, &ended, MPI_STATUS_IGNORE);
        has_ended_ = ended != 0;
        if (has_ended_ && at_end_) at_end_();
        return has_ended_;
      };
    };
  }
  Gathering(const Gathering&) = delete;
  Gathering& operator=(const Gathering&) = delete;

  const MpiRanks& ranks() const { return ranks_; }
  bool has_ended() const { return has_ended_; }

 private:
  MpiRanks ranks_;
  std::function<void()> at_end_;
  bool has_ended_ = false;
};

struct Stopped {};

// Rank 1 is late, and stops when all ranks have the result of the first all-gather.
TEST(FromMpi, HasOneDeadlineForAllItsWaits) {
  if (size_of(MPI_COMM_WORLD) == 1) return;
  using std::chrono::milliseconds;
  constexpr milliseconds kTimeout{3000};
  for (const char* transport : {"shm", "tcp", "mpi"}) {
    if (std::string(transport) == "mpi" && level() < MPI_THREAD_SERIALIZED) continue;
    // MPI can't free one whose all-gather a process doesn't end.
    const SplitComm& all = *new SplitComm(0, 0);  // NOLINT(cppcoreguidelines-owning-memory)
    const auto stop = [] {
      MPI_Barrier(MPI_COMM_WORLD);  // when the others have given up
      throw Stopped();
    };
    const bool stops = my_rank() == 1;
    const Gathering gathering(all.get(), stops ? stop : std::function<void()>());
    CommunicatorOptions options = {.transport = transport, .timeout = kTimeout};
    MPI_Barrier(MPI_COMM_WORLD);
    if (stops) {
      std::this_thread::sleep_for(kTimeout - milliseconds(1100));
      options.timeout = 20 * kTimeout;
      EXPECT_THROW(connect_mpi(gathering.ranks(), options), Stopped);
      continue;
    }
    const auto begin = std::chrono::steady_clock::now();
    expect_error(Code::timeout, [&] { connect_mpi(gathering.ranks(), options); });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kTimeout + kTimeout / 2) << transport;
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

// MPI's duplicates of the communicator are half made then, further at one process than at another.
TEST(FromMpi, ConnectsThroughMpiAfterCallsThatFailedHalfWay) {
  if (size_of(MPI_COMM_WORLD) == 1 || level() < MPI_THREAD_SERIALIZED) return;
  for (int round = 0; round < 4; ++round) {
    const int key = round % 2 == 0 ? -my_rank() : my_rank();  // other duplicates
    const SplitComm& first = *new SplitComm(0, key);  // NOLINT(cppcoreguidelines-owning-memory)
    Gathering gathering(first.get());
    CommunicatorOptions options = {.transport = "mpi", .timeout = std::chrono::seconds(1)};
    if (my_rank() == 1) {
      options.timeout = std::chrono::seconds(60);
      options.interrupted = [&] {
        if (gathering.has_ended()) throw Stopped();
      };
      EXPECT_THROW(connect_mpi(gathering.ranks(), options), Stopped);
    } else {
      bool has_waited = false;
      options.interrupted = [&] {
        if (!gathering.has_ended() || has_waited) return;
        has_waited = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
      };
      EXPECT_THROW(connect_mpi(gathering.ranks(), options), Error);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const SplitComm second(0, key);
    Communicator comm = from_mpi(second.get(), kByMpi);
    expect_group_of(comm, second.get());
  }
}

// A system that tells no boot id, for the calling thread.
class NoBootId {
 public:
  NoBootId() {
    is_there_ = ::unshare(CLONE_NEWNS) == 0 &&
                ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                ::mount("/dev/null", kFile, nullptr, MS_BIND, nullptr) == 0;
  }
  NoBootId(const NoBootId&) = delete;
  NoBootId& operator=(const NoBootId&) = delete;
  ~NoBootId() {
    if (is_there_) ::umount2(kFile, MNT_DETACH);
  }
  bool is_there() const { return is_there_; }

 private:
  static constexpr const char* kFile = "/proc/sys/kernel/random/boot_id";
  bool is_there_ = false;
};

TEST(FromMpi, TakesHostsThatCannotBeToldApartForDifferentOnes) {
  const NoBootId none;
  if (!none.is_there()) GTEST_SKIP() << "this user can't hide the kernel's boot id";
  ASSERT_EQ(base::host_id(), "");
  if (size_of(MPI_COMM_WORLD) == 1) return;
  Communicator comm = from_mpi(MPI_COMM_WORLD);
  EXPECT_EQ(comm.transport(), "tcp");
  EXPECT_EQ(comm.state().hosts(), comm.world());
  expect_group_of(comm, MPI_COMM_WORLD);
}

TEST(FromMpi, CanBeInterrupted) {
  if (size_of(MPI_COMM_WORLD) == 1) return;
  const SplitComm all(0, 0);
  CommunicatorOptions options = {.timeout = std::chrono::minutes(5)};
  options.interrupted = [] { throw Stopped(); };
  if (my_rank() != 0) {
    EXPECT_THROW(from_mpi(all.get(), options), Stopped);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  options.timeout = std::chrono::milliseconds(100);
  options.interrupted = {};
  if (my_rank() == 0) expect_error(Code::timeout, [&] { from_mpi(all.get(), options); });
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(FromMpi, IsForTheThreadThatMayCallMpi) {
  if (level() >= MPI_THREAD_SERIALIZED) return;
  std::thread([] {
    const Error error = expect_error(Code::invalid_argument, [] { from_mpi(MPI_COMM_SELF); });
    EXPECT_STREQ(error.what(),
                 "from_mpi: MPI was started below MPI_THREAD_SERIALIZED: only the thread that has "
                 "started it may call MPI");
  }).join();
}

TEST(FromMpi, SendsChunksThroughMpi) {
  if (level() < MPI_THREAD_SERIALIZED) {
    expect_error(Code::invalid_argument,
                 "the transport mpi needs MPI_Init_thread with MPI_THREAD_SERIALIZED or "
                 "more, and MPI was started with MPI_THREAD_",
                 [] { from_mpi(MPI_COMM_WORLD, kByMpi); });
    return;
  }
  const SplitComm half(my_rank() % 2, -my_rank());
  Communicator comm = from_mpi(half.get(), kByMpi);  // the halves at once
  EXPECT_EQ(comm.transport(), "mpi");
  expect_group_of(comm, half.get());
  Communicator all = from_mpi(MPI_COMM_WORLD, kByMpi);
  expect_group_of(all, MPI_COMM_WORLD);
  expect_group_of(comm, half.get());
  auto part = all.split(all.rank() / 2, 0);
  barrier(*part);
  Communicator again = from_mpi(half.get(), kByMpi);
  expect_group_of(again, half.get());
  expect_group_of(comm, half.get());
}

// The set of processes decides which duplicates are used: MPI libraries have few.
TEST(FromMpi, MakesAnyNumberOfGroupsThroughMpi) {
  if (level() < MPI_THREAD_SERIALIZED) return;
  for (int round = 0; round < 130; ++round) {
    const SplitComm half(my_rank() % 2, 0);
    Communicator comm = from_mpi(half.get(), kByMpi);
    barrier(comm);
  }
}

// Defined last, as it ends MPI.
TEST(FromMpiAtTheEnd, GroupsThatNeedNoMpiOutliveIt) {
  std::optional<Communicator> through_mpi;
  if (level() >= MPI_THREAD_SERIALIZED) through_mpi = from_mpi(MPI_COMM_WORLD, kByMpi);
  Communicator comm = from_mpi(MPI_COMM_WORLD);
  if (through_mpi) barrier(*through_mpi);
  MPI_Finalize();
  std::vector<float> ones(1000, 1.0F);
  all_reduce({ones.data(), ones.size()}, comm);
  EXPECT_EQ(ones.back(), static_cast<float>(comm.world()));
  const Error again = expect_error(Code::invalid_argument, [] { from_mpi(MPI_COMM_WORLD); });
  EXPECT_STREQ(again.what(), "from_mpi: the program has called MPI_Finalize");
  if (through_mpi && through_mpi->world() > 1) {
    expect_error(Code::invalid_argument,
                 "MPI_Finalize was called, which has ended the transport mpi",
                 [&] { all_reduce({ones.data(), 10}, *through_mpi); });
  }
}

}  // namespace
}  // namespace plait

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string wanted = argc > 1 ? argv[1] : "multiple";
  try {
    plait::from_mpi(MPI_COMM_WORLD);
    return 2;
  } catch (const plait::Error& error) {
    if (std::string(error.what()) != "from_mpi: the program has not called MPI_Init") return 3;
  }
  int provided = 0;
  const int asked = wanted == "single"       ? MPI_THREAD_SINGLE
                    : wanted == "serialized" ? MPI_THREAD_SERIALIZED
                                             : MPI_THREAD_MULTIPLE;
  MPI_Init_thread(&argc, &argv, asked, &provided);
  const int failed = RUN_ALL_TESTS();
  int ended = 0;
  MPI_Finalized(&ended);
  if (ended == 0) MPI_Finalize();
  return failed;
}
