#include "comm/engines/mpi/plugin/mpi_world.h"

#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "comm/engines/mpi/plugin/all_gather.h"
#include "comm/engines/mpi/plugin/deferred_release.h"
#include "comm/engines/mpi/plugin/session.h"

namespace plait::comm::mpi {

struct ConnectMessage {
  enum class Kind { hello, answer, withdrawal };
  Kind kind;
  int number;                    // of its sender's try
  int answered = 0;              // answer: the number of the try that it answers
  int first_tag = 0;             // hello
  bool is_interruption = false;  // withdrawal: the caller has ended the try, and not its deadline
  int record_bytes = 0;
  std::array<char, 2048> record = {};

  int bytes() const { return static_cast<int>(offsetof(ConnectMessage, record)) + record_bytes; }
};

namespace {

constexpr Nanoseconds kPollInterval = 10 * base::kMillisecond;

// A try that has just begun may hear first of an interruption before it, and then that the process
// is here again.
constexpr Nanoseconds kUntilHeard = base::kSecond;

// How long a withdrawal may take to leave.
constexpr Nanoseconds kSending = 200 * base::kMillisecond;

class ConnectSend final : public DeferredRelease {
 public:
  ConnectSend(const ConnectMessage& message, int process, MPI_Comm comm) : message_(message) {
    const auto held = hold_mpi();
    check_mpi(
        MPI_Isend(&message_, message_.bytes(), MPI_BYTE, process, kConnectTag, comm, &request_),
        "MPI_Isend");
  }

  bool is_done() override {
    const auto held = hold_mpi();
    int done = 0;
    check_mpi(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  }

 private:
  ConnectMessage message_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

}  // namespace

MpiWorld::MpiWorld(const Processes& processes)
    : processes_(processes),
      me_(processes.rank),
      peers_(processes.count),
      arriving_(std::make_unique<ConnectMessage>()) {
  expect_message();
}

MpiWorld::~MpiWorld() = default;

void MpiWorld::close() noexcept {
  const auto held = hold_mpi();
  if (receiving_ == MPI_REQUEST_NULL) return;
  MPI_Cancel(&receiving_);
  MPI_Wait(&receiving_, MPI_STATUS_IGNORE);
}

std::unique_ptr<Transport> MpiWorld::connect(const WaitPolicy& policy, Deadline deadline,
                                             const std::function<void()>& watch) {
  release_finished();
  try {
    begin(reserve_tags(kGroupTags));
    wait_for_all(policy, deadline, watch);
    is_connecting_ = false;
    return make_group(policy);
  } catch (...) {
    withdraw();
    throw;
  }
}

void MpiWorld::withdraw() {
  is_connecting_ = false;
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
    send({.kind = ConnectMessage::Kind::withdrawal,
          .number = number_,
          .is_interruption = was_interrupted_},
         peer);
  }
  // MPI moves what is sent only while it is called, and the caller may be done with it.
  const Nanoseconds deadline = base::now() + kSending;
  while (was_interrupted_ && release_finished() > 0 && base::now() < deadline) ::usleep(20);
}

void MpiWorld::begin(int first_tag) {
  ++number_;
  is_connecting_ = true;
  began_at_ = base::now();
  was_interrupted_ = false;
  peers_[me_] = {.number = number_,
                 .has_answered = true,
                 .first_tag = first_tag,
                 .record = LocalProcesses::record()};
  const std::string& record = peers_[me_].record;
  ConnectMessage hello = {.kind = ConnectMessage::Kind::hello,
                          .number = number_,
                          .first_tag = first_tag,
                          .record_bytes = static_cast<int>(record.size())};
  PLAIT_CHECK(record.size() <= hello.record.size(), "connect: this process's description of ",
              record.size(), " bytes does not fit the ", hello.record.size(), " of a message");
  std::memcpy(hello.record.data(), record.data(), record.size());
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
    if (peer == me_) continue;
    peers_[peer].has_answered = false;
    send(hello, peer);
    if (peers_[peer].number != 0) answer(peer);
  }
}

void MpiWorld::wait_for_all(const WaitPolicy& policy, Deadline& deadline,
                            const std::function<void()>& watch) {
  Nanoseconds poll_at = 0;
  for (int turn = 0;; ++turn) {
    read_messages();
    const std::vector<int> missing = find_missing();
    if (missing.empty()) return;
    const Nanoseconds now = base::now();
    if (now >= poll_at) {
      ask(policy);
      if (watch) watch();
      release_finished();
      refuse_for_dead(missing);
      refuse_for_interrupted();
      poll_at = now + kPollInterval;
    }
    if (deadline.is_over(now))
      refuse_for_missing(me_, static_cast<int>(peers_.size()), missing, policy.timeout);
    if (turn > 100) ::usleep(100);
  }
}

void MpiWorld::ask(const WaitPolicy& policy) {
  if (!policy.interrupted) return;
  was_interrupted_ = true;  // where it throws
  policy.interrupted();
  was_interrupted_ = false;
}

// Each interruption ends one try of this process, its next one where it is in none.
void MpiWorld::refuse_for_interrupted() {
  if (base::now() - began_at_ < kUntilHeard) return;
  int first = Error::kNoRank;
  for (int peer = static_cast<int>(peers_.size()) - 1; peer >= 0; --peer) {
    if (std::exchange(peers_[peer].was_interrupted, false)) first = peer;
  }
  if (first == Error::kNoRank) return;
  throw Error(Code::peer_lost,
              base::sentence("rank ", me_, " waits to meet the others; rank ", first,
                             " was interrupted while it was connecting"),
              first);
}

std::vector<int> MpiWorld::find_missing() const {
  std::vector<int> missing;
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
    if (!peers_[peer].has_answered) missing.push_back(peer);
  }
  return missing;
}

void MpiWorld::refuse_for_dead(const std::vector<int>& missing) const {
  for (const int peer : missing) {
    if (local_processes_ == nullptr || !local_processes_->has_ended(peer)) continue;
    throw Error(Code::peer_lost,
                base::sentence("rank ", me_, " waits to meet rank ", peer, " (",
                               local_processes_->describe(peer), "), which has died"),
                peer);
  }
}

std::unique_ptr<Transport> MpiWorld::make_group(WaitPolicy policy) {
  Members all = {
      .all = &processes_, .processes = {}, .first_tags = {}, .me = me_, .local_processes = nullptr};
  std::vector<std::string> records;
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
    all.processes.push_back(peer);
    all.first_tags.push_back(peers_[peer].first_tag);
    records.push_back(peers_[peer].record);
  }
  if (local_processes_ == nullptr) {
    local_processes_ = std::make_shared<LocalProcesses>(records);
    watch_at_the_end(local_processes_);
  }
  all.local_processes = local_processes_.get();
  policy.oversubscribed = local_processes_->oversubscribed();
  return std::make_unique<MpiTransport>(
      std::make_shared<MpiGroup>(std::move(all), local_processes_, policy));
}

void MpiWorld::expect_message() {
  const auto held = hold_mpi();
  check_mpi(MPI_Irecv(arriving_.get(), sizeof(ConnectMessage), MPI_BYTE, MPI_ANY_SOURCE,
                      kConnectTag, processes_.comm_dups.front(), &receiving_),
            "MPI_Irecv");
}

void MpiWorld::read_messages() {
  for (;;) {
    MPI_Status status;
    {
      const auto held = hold_mpi();
      int there = 0;
      check_mpi(MPI_Test(&receiving_, &there, &status), "MPI_Test");
      if (there == 0) return;
    }
    read(*arriving_, status.MPI_SOURCE);
    expect_message();
  }
}

void MpiWorld::read(const ConnectMessage& message, int peer) {
  Peer& from = peers_[peer];
  switch (message.kind) {
    case ConnectMessage::Kind::hello:
      from = {.number = message.number,
              .has_answered = false,
              .first_tag = message.first_tag,
              .record = {message.record.data(), static_cast<std::size_t>(message.record_bytes)}};
      if (is_connecting_) answer(peer);
      return;
    case ConnectMessage::Kind::answer:
      if (message.answered == number_ && message.number == from.number) from.has_answered = true;
      return;
    case ConnectMessage::Kind::withdrawal:
      if (message.number == from.number) from.was_interrupted = message.is_interruption;
      from.number = 0;
      from.has_answered = false;
  }
}

void MpiWorld::answer(int peer) {
  send({.kind = ConnectMessage::Kind::answer, .number = number_, .answered = peers_[peer].number},
       peer);
}

void MpiWorld::send(const ConnectMessage& message, int peer) {
  const bool has_ended = local_processes_ != nullptr && local_processes_->has_ended(peer);
  if (peer != me_ && !has_ended)
    release_later(std::make_unique<ConnectSend>(message, peer, processes_.comm_dups.front()));
}

}  // namespace plait::comm::mpi
