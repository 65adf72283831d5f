#include "comm/engines/mpi/plugin/mpi_carrier.h"

#include <sys/timerfd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/close_on_fork.h"
#include "comm/engines/mpi/plugin/deferred_release.h"

namespace plait::comm::mpi {
namespace {

using tcp::Frame;

// The most bytes that go along with their frame: for more, a second message costs less than the
// copies.
constexpr std::size_t kSmall = 32768;

// The most bytes of one message: MPI counts them by int.
constexpr std::size_t kMostAtOnce = std::size_t{64} << 20;

// The most frames that one move() expects, so that other threads get their turn.
constexpr int kMostFrames = 64;

// How long a thread sleeps before it looks again, and how long after the last news none sleeps: MPI
// moves large messages only while it is called.
constexpr base::Nanoseconds kNap = 50 * base::kMicrosecond;
constexpr base::Nanoseconds kAwake = 100 * base::kMicrosecond;
constexpr base::Nanoseconds kAwakeWhileBusy = 5 * base::kMillisecond;

constexpr base::Nanoseconds kSoon = 5 * base::kMicrosecond;

// How often a sender asks whether the processes of this host live.
constexpr base::Nanoseconds kBetweenLooks = 100 * base::kMicrosecond;

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
  check_mpi(
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
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
    bool is_idle = true;
    for (Peer& peer : peers_) {
      for (Incoming& one : peer.incoming) {
        if (!is_cancelled_ && !one.is_done()) cancel(one);
      }
      std::erase_if(peer.incoming, is_over);
      std::erase_if(peer.outgoing, is_over);
      is_idle = is_idle && peer.question.is_done();
    }
    is_cancelled_ = true;
    return is_idle && std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
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

MpiCarrier::MpiCarrier(const Comms& comms, int tag, int me,
                       std::shared_ptr<const LocalProcesses> local_processes)
    : comms_(comms),
      tag_(tag),
      me_(me),
      local_processes_(std::move(local_processes)),
      peers_(local_processes_->count()),
      timer_(make_timer()) {}

MpiCarrier::~MpiCarrier() {
  const auto is_idle = [](const Peer& peer) {
    return peer.incoming.empty() && peer.outgoing.empty() && peer.asked == peer.received;
  };
  if (std::all_of(peers_.begin(), peers_.end(), is_idle)) return;
  mpi::note_failure();
  release_later(std::make_unique<Unfinished>(std::move(peers_)));
}

std::string MpiCarrier::route_to(int process) const {
  return process == me_ ? "" : "messages, whose way the MPI library chooses";
}

std::shared_ptr<const void> MpiCarrier::hold(const base::Region& memory) {
  return std::make_shared<const base::Region>(memory);
}

// Over sockets, Open MPI ends a process that sends to one that has died.
bool MpiCarrier::has_lost(int process) {
  std::string& error = peers_[process].error;
  const base::Nanoseconds now = base::now();
  if (error.empty() && now - looked_at_ > kBetweenLooks) {
    looked_at_ = now;
    if (local_processes_->has_ended(process)) error = "it has died";
  }
  return !error.empty();
}

MpiCarrier::Transfer MpiCarrier::begin(int process, const Frame& frame, const std::byte* payload) {
  Transfer transfer;
  const std::size_t along = frame.bytes <= kSmall ? frame.bytes : 0;
  transfer.words.resize(sizeof(frame) + along);
  std::memcpy(transfer.words.data(), &frame, sizeof(frame));
  if (along > 0) std::memcpy(transfer.words.data() + sizeof(frame), payload, along);
  const auto send = frame.kind == tcp::Kind::question ? &MPI_Issend : &MPI_Isend;
  check_mpi(send(transfer.words.data(), static_cast<int>(transfer.words.size()), MPI_BYTE, process,
                 tag_, comms_.frames, &transfer.requests.emplace_back(MPI_REQUEST_NULL)),
            "MPI_Isend");
  if (along == frame.bytes) return transfer;
  for_each_message(payload, frame.bytes, [&](const std::byte* bytes, int count) {
    MPI_Request& request = transfer.requests.emplace_back(MPI_REQUEST_NULL);
    check_mpi(MPI_Isend(bytes, count, MPI_BYTE, process, tag_, comms_.payloads, &request),
              "MPI_Isend");
  });
  return transfer;
}

void MpiCarrier::send(int process, const Frame& frame, const std::byte* payload,
                      std::shared_ptr<const void> owner) {
  const auto held = hold_mpi();
  Peer& peer = peers_[process];
  ++peer.sent;
  if (has_lost(process)) return;
  try {
    Transfer transfer = begin(process, frame, payload);
    if (transfer.is_done()) return;
    transfer.memory = std::move(owner);
    peer.outgoing.push_back(std::move(transfer));
  } catch (const Error& error) {
    peer.error = error.what();
  }
}

bool MpiCarrier::move(const tcp::Connection::Find& find) try {
  const auto held = hold_mpi();
  bool is_news = false;
  // Open MPI looks first and then brings what it has: where nobody asks again soon, the second
  // question finds it.
  const base::Nanoseconds now = base::now();
  if (now - std::exchange(moved_at_, now) > kSoon) is_news = expect_frame();
  for (int turn = 0; turn < kMostFrames && expect_frame(); ++turn) is_news = true;
  for (int process = 0; process < static_cast<int>(peers_.size()); ++process) {
    if (peers_[process].error.empty()) is_news |= advance(process, find);
  }
  if (is_news) news_at_ = now;
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
  bool is_news = false;
  for (; !peer.outgoing.empty() && peer.outgoing.front().is_done(); peer.outgoing.pop_front())
    is_news = true;
  for (Incoming& chunk : peer.incoming) {
    if (chunk.has_frame) continue;
    if (!chunk.is_done()) break;
    read_frame(process, chunk, find);
    if (!peer.error.empty()) return true;
  }
  while (!peer.incoming.empty() && peer.incoming.front().has_frame &&
         peer.incoming.front().is_done()) {
    const Frame frame = peer.incoming.front().frame;
    peer.incoming.pop_front();
    ++peer.come;
    is_news = true;
    if (frame.kind == tcp::Kind::question) continue;  // that it is here is the answer
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
  if (chunk.words.size() >= sizeof(frame)) std::memcpy(&frame, chunk.words.data(), sizeof(frame));
  const bool is_chunk = frame.kind == tcp::Kind::chunk;
  const bool is_word =
      (frame.kind == tcp::Kind::credit || frame.kind == tcp::Kind::question) && frame.bytes == 0;
  if (chunk.words.size() < sizeof(frame) || frame.magic != Frame::kMagic ||
      (!is_chunk && !is_word) || along != (frame.bytes <= kSmall ? frame.bytes : 0)) {
    peer.error = base::sentence("MPI brought ", chunk.words.size(),
                                " bytes from it that are no frame of a chunk");
    return;
  }
  chunk.has_frame = true;
  if (is_word) return;
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
    check_mpi(MPI_Irecv(bytes, count, MPI_BYTE, process, tag_, comms_.payloads, &request),
              "MPI_Irecv");
  });
}

// One question at a time, about all that has been sent.
bool MpiCarrier::is_received(int process, std::uint32_t count) try {
  const auto held = hold_mpi();
  Peer& peer = peers_[process];
  if (peer.asked != peer.received && peer.question.is_done()) peer.received = peer.asked;
  if (static_cast<std::int32_t>(peer.received - count) >= 0) return peer.outgoing.empty();
  if (peer.asked != peer.received || has_lost(process)) return false;
  peer.question = begin(process, {.kind = tcp::Kind::question, .receiver = 0}, nullptr);
  peer.asked = ++peer.sent;
  return false;
} catch (const Error& error) {
  note_error(error.what());
  return false;
}

bool MpiCarrier::arm() {
  const bool is_busy = std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
    return !peer.incoming.empty() || !peer.outgoing.empty();
  });
  if (base::now() - news_at_ < (is_busy ? kAwakeWhileBusy : kAwake)) return false;
  const itimerspec once = {.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = kNap}};
  return ::timerfd_settime(timer_.get(), 0, &once, nullptr) == 0;
}

}  // namespace plait::comm::mpi
