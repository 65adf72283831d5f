// Started by mpirun with two processes. Process 0 has a carrier, and process 1 sends it by MPI what
// no carrier sends, or seems to be ending.
#include "comm/engines/mpi/plugin/mpi_carrier.h"

#include <gtest/gtest.h>
#include <mpi.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/process.h"
#include "base/text.h"
#include "comm/control/frame.h"

namespace plait::comm::mpi {
namespace {

using tcp::Frame;
using tcp::Kind;

Processes& processes() {
  static Processes& all = meet_processes(std::nullopt, {.timeout = 60 * base::kSecond});
  return all;
}

bool is_first() { return processes().rank == 0; }

int fresh_tag() {
  static int last = 0;
  return ++last;
}

void meet() { check_mpi(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier"); }

// Process 0's, which takes the record for process 1's.
std::unique_ptr<MpiCarrier> make_carrier(int tag, const std::string& record) {
  const std::vector<std::string> records = {LocalProcesses::record(), record};
  const MpiCarrier::Comms comms = {.frames = processes().comm_dups[0],
                                   .payloads = processes().comm_dups[1]};
  return std::make_unique<MpiCarrier>(comms, tag, 0,
                                      std::make_shared<const LocalProcesses>(records));
}

// A mailbox that may have no room, or refuse what has come.
class OneSlot final : public tcp::Receiver {
 public:
  OneSlot(bool has_room, bool accepts) : has_room_(has_room), accepts_(accepts) {}

  std::byte* place_for(int /*process*/, const Frame& /*frame*/) override {
    return has_room_ ? slot_ : nullptr;
  }
  bool receive(int /*process*/, const Frame& /*frame*/, std::string /*text*/) override {
    return accepts_;
  }

 private:
  bool has_room_;
  bool accepts_;
  std::byte slot_[64] = {};
};

std::string bytes_of(const Frame& frame, std::size_t along = 0) {
  std::string bytes(sizeof(frame) + along, 'x');
  std::memcpy(bytes.data(), &frame, sizeof(frame));
  return bytes;
}

template <class Condition>
void move_until(MpiCarrier& carrier, const tcp::Connection::Find& find, Condition condition) {
  const base::Nanoseconds end = base::now() + 20 * base::kSecond;
  while (!condition() && base::now() < end) carrier.move(find);
  EXPECT_TRUE(condition());
}

// The error of process 1 when it has sent these bytes as a frame.
void expect_error(const std::string& bytes, OneSlot&& slot, const std::string& error) {
  const int tag = fresh_tag();
  if (!is_first()) {
    MPI_Send(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, 0, tag,
             processes().comm_dups[0]);
    return meet();
  }
  const auto carrier = make_carrier(tag, "");
  move_until(
      *carrier, [&](std::uint32_t) { return &slot; },
      [&] { return !carrier->error_of(1).empty(); });
  EXPECT_EQ(carrier->error_of(1), error);
  meet();
}

TEST(MpiCarrier, RefusesWhatIsNoFrame) {
  const auto refusal = [](const std::string& bytes) {
    return base::sentence("MPI brought ", bytes.size(),
                          " bytes from it that are no frame of a chunk");
  };
  const std::string whole = bytes_of({.kind = Kind::credit, .receiver = 1});
  for (const std::string& bytes :
       {whole.substr(0, 3), whole + "x",
        bytes_of({.magic = 1, .kind = Kind::credit, .receiver = 1}),
        bytes_of({.kind = Kind::gather, .receiver = 1}),
        bytes_of({.kind = Kind::chunk, .receiver = 1, .bytes = 8}),
        bytes_of({.kind = Kind::credit, .receiver = 1, .bytes = 8}, 8)}) {
    expect_error(bytes, OneSlot(true, true), refusal(bytes));
  }
}

TEST(MpiCarrier, RefusesAChunkForWhichThereIsNoRoom) {
  expect_error(bytes_of({.kind = Kind::chunk, .receiver = 1, .bytes = 8}, 8), OneSlot(false, true),
               "a chunk came from it for which there was no room");
}

TEST(MpiCarrier, RefusesAChunkThatMakesNoSense) {
  expect_error(bytes_of({.kind = Kind::chunk, .receiver = 1, .bytes = 8}, 8), OneSlot(true, false),
               "a chunk that came from it made no sense to its receiver");
}

// A process whose first thread has ended before another one.
class WithoutFirstThread {
 public:
  WithoutFirstThread() : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::thread([] { ::pause(); }).detach();
    ::syscall(SYS_exit, 0);  // of this thread, and without unwinding the test's stack
  }
  WithoutFirstThread(const WithoutFirstThread&) = delete;
  WithoutFirstThread& operator=(const WithoutFirstThread&) = delete;
  ~WithoutFirstThread() {
    kill();
    ::waitpid(pid_, nullptr, 0);
  }

  void kill() const { ::kill(pid_, SIGKILL); }

  // Its record, once it looks like a process that is ending.
  std::string record() const {
    const std::string mine = LocalProcesses::record();
    const std::size_t realm = mine.find(' ', mine.find(' ') + 1);
    const std::string text = base::sentence(pid_, ' ', base::start_of(pid_), mine.substr(realm));
    const LocalProcesses all({text});
    for (int tries = 0; tries < 10'000 && !all.may_be_ending(0); ++tries) ::usleep(1000);
    EXPECT_TRUE(all.may_be_ending(0));
    return text;
  }

 private:
  pid_t pid_;
};

const tcp::Connection::Find kFindNone = [](std::uint32_t) { return nullptr; };

// Other processes' frames move meanwhile, so sending doesn't wait for that.
TEST(MpiCarrier, HoldsFramesBackForAProcessThatMayBeEnding) {
  const int tag = fresh_tag();
  if (!is_first()) {
    Frame frames[2] = {{.kind = Kind::wake, .receiver = 0}, {.kind = Kind::wake, .receiver = 0}};
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(&frames[0], sizeof(Frame), MPI_BYTE, 0, tag, processes().comm_dups[0], &request);
    meet();
    int is_here = 0;
    MPI_Test(&request, &is_here, MPI_STATUS_IGNORE);
    EXPECT_EQ(is_here, 0);
    meet();
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Recv(&frames[1], sizeof(Frame), MPI_BYTE, 0, tag, processes().comm_dups[0],
             MPI_STATUS_IGNORE);
    EXPECT_EQ(frames[0].slot, 0U);
    EXPECT_EQ(frames[1].slot, 1U);
    return meet();
  }
  const WithoutFirstThread process;
  const auto carrier = make_carrier(tag, process.record());
  const base::Nanoseconds start = base::now();
  for (const std::uint32_t slot : {0U, 1U})
    carrier->send(1, {.kind = Kind::credit, .receiver = 1, .slot = slot}, nullptr, nullptr);
  carrier->move(kFindNone);
  EXPECT_FALSE(carrier->is_received(1, 2));
  EXPECT_LT(base::now() - start, base::kSecond / 2);
  EXPECT_FALSE(carrier->is_sent(1));
  meet();
  meet();
  move_until(*carrier, kFindNone, [&] { return carrier->is_sent(1); });
  EXPECT_EQ(carrier->error_of(1), "");
  meet();
}

TEST(MpiCarrier, SeesThatAProcessHasDiedForWhichItHoldsFramesBack) {
  const int tag = fresh_tag();
  if (!is_first()) return meet();
  const WithoutFirstThread process;
  const auto carrier = make_carrier(tag, process.record());
  carrier->send(1, {.kind = Kind::credit, .receiver = 1}, nullptr, nullptr);
  EXPECT_EQ(carrier->error_of(1), "");
  process.kill();
  move_until(*carrier, kFindNone, [&] { return !carrier->error_of(1).empty(); });
  EXPECT_EQ(carrier->error_of(1), "it has died");
  meet();
}

}  // namespace
}  // namespace plait::comm::mpi
