#include "comm/engines/mpi/plugin/mpi_carrier.h"

#include <sys/timerfd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/close_on_fork.h"
#include "comm/engines/mpi/plugin/deferred_release.h"
#include "comm/engines/mpi/plugin/session.h"

namespace plait::comm::mpi {
namespace {

using tcp::Frame;

// The most bytes that go along with their frame. MPI libraries pass so much on at once, and need no
// later call of the sender for it.
constexpr std::size_t kSmall = 3840;

// The most bytes of one message: MPI counts them by int.
constexpr std::size_t kMostAtOnce = std::size_t{64} << 20;

// The most frames that one move() expects, so that other threads get their turn.
constexpr int kMostFrames = 64;

// How long a thread sleeps before it looks again.
constexpr base::Nanoseconds kNap = 50 * base::kMicrosecond;

base::Fd make_timer() {
  const base::CloseOnFork closing;
  base::Fd timer = closing.adopt(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer) base::fail_errno("cannot make a timer");
  return timer;
}

// Calls `transfer` for each message that the bytes go by.
template <class Bytes, class Body>
void for_each_message(Bytes* bytes, std::size_t count, const Body& transfer) {
  for (std::size_t done = 0; done < count; done += kMostAtOnce)
    transfer(bytes + done, static_cast<int>(std::min(kMostAtOnce, count - done)));
}

}  // namespace

bool MpiCarrier::Transfer::is_done() {
  int done = 0;
  check_mpi(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done,
                        MPI_STATUSES_IGNORE),
            "MPI_Testall");
  return done != 0;
}

// What is still under way when its carrier ends.
class MpiCarrier::Unfinished final : public DeferredRelease {
 public:
  explicit Unfinished(std::vector<Peer> peers) : peers_(std::move(peers)) {}

  bool is_done() override {
    const auto held = hold_mpi();
    const auto is_over = [](Transfer& one) { return one.is_done(); };
    for (Peer& peer : peers_) {
      for (Incoming& one : peer.incoming) {
        if (!is_cancelled_ && !one.is_done()) cancel(one);
      }
      std::erase_if(peer.incoming, is_over);
      std::erase_if(peer.outgoing, is_over);
    }
    is_cancelled_ = true;
    return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
      return peer.incoming.empty() && peer.outgoing.empty();
    });
  }

 private:
  static void cancel(Incoming& one) {
    for (MPI_Request& request : one.requests) {
      if (request != MPI_REQUEST_NULL) MPI_Cancel(&request);
    }
  }

  std::vector<Peer> peers_;
  bool is_cancelled_ = false;
};

MpiCarrier::MpiCarrier(const Comms& comms, int tag, int me, int processes)
    : comms_(comms), tag_(tag), me_(me), timer_(make_timer()) {
  peers_.resize(static_cast<std::size_t>(processes));
}

MpiCarrier::~MpiCarrier() {
  const auto is_idle = [](const Peer& peer) {
    return peer.incoming.empty() && peer.outgoing.empty();
  };
  if (std::all_of(peers_.begin(), peers_.end(), is_idle)) return;
  note_failure();
  release_later(std::make_unique<Unfinished>(std::move(peers_)));
}

std::string MpiCarrier::route_to(int process) const {
  return process == me_ ? "" : "messages, whose way the MPI library chooses";
}

std::shared_ptr<const void> MpiCarrier::hold(const base::Region& memory) {
  return std::make_shared<const base::Region>(memory);
}

void MpiCarrier::send(int process, const Frame& frame, const std::byte* payload,
                      std::shared_ptr<const void> owner) {
  const auto held = hold_mpi();
  Peer& peer = peers_[process];
  ++peer.sent;
  if (!peer.error.empty()) return;
  Transfer& chunk = peer.outgoing.emplace_back();
  const bool is_small = frame.bytes <= kSmall;
  const std::size_t along = is_small ? frame.bytes : 0;
  chunk.words.resize(sizeof(frame) + along);
  std::memcpy(chunk.words.data(), &frame, sizeof(frame));
  if (along > 0) std::memcpy(chunk.words.data() + sizeof(frame), payload, along);
  const auto begin = [&](const std::byte* bytes, int count, MPI_Comm comm) {
    MPI_Request& request = chunk.requests.emplace_back(MPI_REQUEST_NULL);
    check_mpi(MPI_Issend(bytes, count, MPI_BYTE, process, tag_, comm, &request), "MPI_Issend");
  };
  try {
    begin(chunk.words.data(), static_cast<int>(chunk.words.size()), comms_.frames);
    if (is_small) return;
    chunk.memory = std::move(owner);
    for_each_message(payload, frame.bytes, [&](const std::byte* bytes, int count) {
      begin(bytes, count, comms_.payloads);
    });
  } catch (const Error& error) {
    peer.error = error.what();
  }
}

bool MpiCarrier::move(const tcp::Connection::Find& find) try {
  const auto held = hold_mpi();
  bool is_news = false;
  // Open MPI looks first and then brings what it has: the second question finds it.
  static_cast<void>(expect_frame());
  for (int turn = 0; turn < kMostFrames && expect_frame(); ++turn) is_news = true;
  for (int process = 0; process < static_cast<int>(peers_.size()); ++process) {
    if (peers_[process].error.empty()) is_news |= advance(process, find);
  }
  return is_news;
} catch (const Error& error) {
  note_error(error.what());
  return false;
}

void MpiCarrier::note_error(const std::string& why) {
  for (Peer& peer : peers_) {
    if (peer.error.empty()) peer.error = why;
  }
}

// False where none has come. Frames of one process come in order.
bool MpiCarrier::expect_frame() {
  int is_there = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status = {};
  check_mpi(MPI_Improbe(MPI_ANY_SOURCE, tag_, comms_.frames, &is_there, &message, &status),
            "MPI_Improbe");
  if (is_there == 0) return false;
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  Incoming& chunk = peers_[status.MPI_SOURCE].incoming.emplace_back();
  chunk.words.resize(static_cast<std::size_t>(bytes));
  MPI_Request& request = chunk.requests.emplace_back(MPI_REQUEST_NULL);
  check_mpi(MPI_Imrecv(chunk.words.data(), bytes, MPI_BYTE, &message, &request), "MPI_Imrecv");
  return true;
}

// Chunks reach their receivers in order, whichever is here first.
bool MpiCarrier::advance(int process, const tcp::Connection::Find& find) {
  Peer& peer = peers_[process];
  for (; !peer.outgoing.empty() && peer.outgoing.front().is_done(); peer.outgoing.pop_front())
    ++peer.received;
  for (Incoming& chunk : peer.incoming) {
    if (chunk.has_frame) continue;
    if (!chunk.is_done()) break;
    read_frame(process, chunk, find);
    if (!peer.error.empty()) return true;
  }
  bool is_news = false;
  while (!peer.incoming.empty() && peer.incoming.front().has_frame &&
         peer.incoming.front().is_done()) {
    const Frame frame = peer.incoming.front().frame;
    peer.incoming.pop_front();
    ++peer.come;
    is_news = true;
    tcp::Receiver* receiver = find(frame.receiver);
    if (receiver != nullptr && !receiver->receive(process, frame, {})) {
      peer.error = "a chunk that came from it made no sense to its receiver";
      break;
    }
  }
  return is_news;
}

void MpiCarrier::read_frame(int process, Incoming& chunk, const tcp::Connection::Find& find) {
  Peer& peer = peers_[process];
  Frame& frame = chunk.frame;
  const std::size_t along = chunk.words.size() - std::min(chunk.words.size(), sizeof(frame));
  if (chunk.words.size() >= sizeof(frame))
    std::memcpy(&frame, chunk.words.data(), sizeof(frame));
  if (chunk.words.size() < sizeof(frame) || frame.magic != Frame::kMagic ||
      frame.kind != tcp::Kind::chunk || along != (frame.bytes <= kSmall ? frame.bytes : 0)) {
    peer.error = base::sentence("MPI brought ", chunk.words.size(),
                                " bytes from it that are no frame of a chunk");
    return;
  }
  chunk.has_frame = true;
  tcp::Receiver* receiver = find(frame.receiver);  // null: its mailbox is gone
  std::byte* place = receiver == nullptr ? nullptr : receiver->place_for(process, frame);
  if (receiver != nullptr && place == nullptr) {
    peer.error = "a chunk came from it for which there was no room";
    return;
  }
  if (frame.bytes > kSmall) {
    if (receiver != nullptr) chunk.memory = receiver->memory();
    fetch(process, chunk, place);
  } else if (place != nullptr && along > 0) {
    std::memcpy(place, chunk.words.data() + sizeof(frame), along);
  }
}

// Receives are posted in the order in which the bytes were sent.
void MpiCarrier::fetch(int process, Incoming& chunk, std::byte* place) {
  if (place == nullptr) {
    chunk.words.resize(chunk.frame.bytes);
    place = chunk.words.data();
  }
  chunk.requests.clear();
  for_each_message(place, chunk.frame.bytes, [&](std::byte* bytes, int count) {
    MPI_Request& request = chunk.requests.emplace_back(MPI_REQUEST_NULL);
    check_mpi(
        MPI_Irecv(bytes, count, MPI_BYTE, process, tag_, comms_.payloads, &request), "MPI_Irecv");
  });
}

bool MpiCarrier::is_sent(int process) const {
  const auto& outgoing = peers_[process].outgoing;
  return std::none_of(outgoing.begin(), outgoing.end(),
                      [](const Transfer& one) { return one.memory != nullptr; });
}

bool MpiCarrier::is_received(int process, std::uint32_t count) {
  return static_cast<std::int32_t>(peers_[process].received - count) >= 0;
}

bool MpiCarrier::arm() {
  const itimerspec once = {.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = kNap}};
  return ::timerfd_settime(timer_.get(), 0, &once, nullptr) == 0;
}

}  // namespace plait::comm::mpi
