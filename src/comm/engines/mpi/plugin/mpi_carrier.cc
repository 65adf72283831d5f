#include "comm/engines/mpi/plugin/mpi_carrier.h"

#include <sys/timerfd.h>
#include <unistd.h>

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
constexpr std::size_t kMostWords = sizeof(Frame) + kSmall;

// The most bytes of one message: MPI counts them by int.
constexpr std::size_t kMostAtOnce = std::size_t{64} << 20;

// A caller that has asked so recently will soon ask again.
constexpr base::Nanoseconds kSoon = 5 * base::kMicrosecond;

// A thread sleeps for a nap before it looks again, and stays awake for so long after the last news:
// MPI moves large messages only while it is called.
constexpr base::Nanoseconds kNap = 50 * base::kMicrosecond;
constexpr base::Nanoseconds kAwake = 100 * base::kMicrosecond;
constexpr base::Nanoseconds kAwakeWhileBusy = 5 * base::kMillisecond;

// How often a sender looks whether a process of this host lives, which costs 2 us. A process that
// dies takes longer to give up its memory, before it closes its sockets.
constexpr base::Nanoseconds kBetweenLooks = 50 * base::kMicrosecond;

// How long a process may take from the beginning of its end to its end.
constexpr base::Nanoseconds kLongestEnd = base::kSecond;

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

// Transfers that are still under way when their carrier ends.
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
      timer_(make_timer()) {
  release_finished();
  const auto held = hold_mpi();
  receives_ = std::make_shared<FrameReceives>(comms.frames, tag, kMostWords);
  close_at_the_end(receives_);
  receives_->start(me, static_cast<int>(peers_.size()));
}

MpiCarrier::~MpiCarrier() {
  release_later(receives_);
  const auto is_idle = [](const Peer& peer) {
    return peer.incoming.empty() && peer.outgoing.empty() && peer.held_back.empty() &&
           peer.asked == peer.received;
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

// Over sockets, SIGPIPE ends a process that sends to one that has died. Where it is ignored, Open
// MPI may never return.
bool MpiCarrier::may_send_to(int process) {
  Peer& peer = peers_[process];
  const base::Nanoseconds now = base::now();
  if (peer.error.empty() && now - peer.looked_at > kBetweenLooks) {
    peer.looked_at = now;
    if (!seems_to_end(process)) {
      peer.ending_since = 0;
    } else if (local_processes_->has_ended(process)) {
      peer.error = "it has died";
      peer.held_back.clear();
    }
  }
  return peer.error.empty() && peer.ending_since == 0;
}

// A process that seems to be ending has so long for that, until it is known that it only lacks its
// first thread. Nothing may be sent to it before.
bool MpiCarrier::seems_to_end(int process) {
  Peer& peer = peers_[process];
  if (!local_processes_->may_be_ending(process)) return false;
  if (peer.ending_since == 0) peer.ending_since = peer.looked_at;
  peer.lacks_first_thread =
      peer.lacks_first_thread || peer.looked_at - peer.ending_since > kLongestEnd;
  return !peer.lacks_first_thread || local_processes_->has_ended(process);
}

void MpiCarrier::begin(Transfer& transfer, int process, const Frame& frame,
                       const std::byte* payload) {
  const std::size_t along = frame.bytes <= kSmall ? frame.bytes : 0;
  if (spare_words_.empty()) {
    transfer.words = std::make_unique_for_overwrite<std::byte[]>(kMostWords);
  } else {
    transfer.words = std::move(spare_words_.back());
    spare_words_.pop_back();
  }
  std::memcpy(transfer.words.get(), &frame, sizeof(frame));
  if (along > 0) std::memcpy(transfer.words.get() + sizeof(frame), payload, along);
  const auto send = frame.kind == tcp::Kind::question ? &MPI_Issend : &MPI_Isend;
  check_mpi(send(transfer.words.get(), static_cast<int>(sizeof(frame) + along), MPI_BYTE, process,
                 tag_, comms_.frames, &transfer.requests.emplace_back(MPI_REQUEST_NULL)),
            "MPI_Isend");
  if (along == frame.bytes) return;
  for_each_message(payload, frame.bytes, [&](const std::byte* bytes, int count) {
    MPI_Request& request = transfer.requests.emplace_back(MPI_REQUEST_NULL);
    check_mpi(MPI_Isend(bytes, count, MPI_BYTE, process, tag_, comms_.payloads, &request),
              "MPI_Isend");
  });
}

void MpiCarrier::send(int process, const Frame& frame, const std::byte* payload,
                      std::shared_ptr<const void> owner) {
  const auto held = hold_mpi();
  Peer& peer = peers_[process];
  ++peer.sent;
  const bool may_send = may_send_to(process);
  if (!peer.error.empty()) return;
  if (may_send && peer.held_back.empty())
    return send_now(process, frame, payload, std::move(owner));
  peer.held_back.push_back({.frame = frame, .payload = payload, .owner = std::move(owner)});
}

void MpiCarrier::send_now(int process, const Frame& frame, const std::byte* payload,
                          std::shared_ptr<const void> owner) {
  Peer& peer = peers_[process];
  Transfer transfer;
  transfer.memory = std::move(owner);
  try {
    begin(transfer, process, frame, payload);
    if (transfer.is_done()) return keep_words(transfer);
  } catch (const Error& error) {
    peer.error = error.what();
  }
  peer.outgoing.push_back(std::move(transfer));
}

// One frame at a time: to ask for one that isn't here costs as much as to bring one. Open MPI looks
// first and then brings what it has, so where no question follows soon, a second one finds it.
bool MpiCarrier::move(const tcp::Connection::Find& find) try {
  const auto held = hold_mpi();
  const base::Nanoseconds now = base::now();
  const bool asks_again = now - std::exchange(moved_at_, now) > kSoon;
  auto frame = receives_->next();
  if (!frame && asks_again) frame = receives_->next();
  bool is_news = frame.has_value();
  if (frame) take(*frame, find);
  for (int process = 0; process < static_cast<int>(peers_.size()); ++process) {
    if (peers_[process].error.empty()) is_news |= advance(process, find);
  }
  if (is_news) news_at_ = now;
  return is_news;
} catch (const Error& error) {
  for (Peer& peer : peers_) {
    if (peer.error.empty()) peer.error = error.what();
  }
  return false;
}

void MpiCarrier::take(const FrameReceives::Received& frame, const tcp::Connection::Find& find) {
  Peer& peer = peers_[frame.process];
  if (peer.error.empty()) peer.error = frame.error;
  if (!peer.error.empty()) return;
  try {
    read_frame(frame.process, frame.bytes, find);
    receives_->receive_again(frame.process);
  } catch (const Error& error) {
    peer.error = error.what();
  }
}

void MpiCarrier::read_frame(int process, std::span<const std::byte> bytes,
                            const tcp::Connection::Find& find) {
  Frame frame = {.kind = tcp::Kind::question, .receiver = 0};
  const auto along = bytes.subspan(std::min(bytes.size(), sizeof(frame)));
  if (bytes.size() >= sizeof(frame)) std::memcpy(&frame, bytes.data(), sizeof(frame));
  const bool is_word =
      (frame.kind == tcp::Kind::credit || frame.kind == tcp::Kind::question) && frame.bytes == 0;
  const bool is_whole = bytes.size() >= sizeof(frame) && frame.magic == Frame::kMagic &&
                        along.size() == (frame.bytes <= kSmall ? frame.bytes : 0);
  if (!is_whole || (!is_word && frame.kind != tcp::Kind::chunk)) {
    peers_[process].error =
        base::sentence("MPI brought ", bytes.size(), " bytes from it that are no frame of a chunk");
  } else {
    expect(process, frame, along, find);
  }
}

// Chunks reach their receivers in order, whichever is here first.
void MpiCarrier::expect(int process, const Frame& frame, std::span<const std::byte> along,
                        const tcp::Connection::Find& find) {
  Peer& peer = peers_[process];
  Incoming chunk = {{}, frame};
  if (frame.kind == tcp::Kind::chunk) {
    tcp::Receiver* receiver = find(frame.receiver);  // null: its mailbox is gone
    std::byte* place = receiver == nullptr ? nullptr : receiver->place_for(process, frame);
    if (receiver != nullptr && place == nullptr) {
      peer.error = "a chunk came from it for which there was no room";
      return;
    }
    if (place != nullptr && !along.empty()) std::memcpy(place, along.data(), along.size());
    if (frame.bytes > kSmall) {
      if (receiver != nullptr) chunk.memory = receiver->memory();
      peer.incoming.push_back(std::move(chunk));
      return fetch(process, peer.incoming.back(), place);
    }
  }
  if (peer.incoming.empty()) return hand_on(process, frame, find);
  peer.incoming.push_back(std::move(chunk));
}

void MpiCarrier::hand_on(int process, const Frame& frame, const tcp::Connection::Find& find) {
  Peer& peer = peers_[process];
  ++peer.come;
  if (frame.kind == tcp::Kind::question) return;  // its arrival is the answer
  tcp::Receiver* receiver = find(frame.receiver);
  if (receiver != nullptr && !receiver->receive(process, frame, {}))
    peer.error = "a chunk that came from it made no sense to its receiver";
}

bool MpiCarrier::advance(int process, const tcp::Connection::Find& find) try {
  Peer& peer = peers_[process];
  bool is_news = false;
  while (!peer.held_back.empty() && may_send_to(process)) {
    HeldBack next = std::move(peer.held_back.front());
    peer.held_back.pop_front();
    send_now(process, next.frame, next.payload, std::move(next.owner));
  }
  for (; !peer.outgoing.empty() && peer.outgoing.front().is_done(); peer.outgoing.pop_front()) {
    is_news = true;
    keep_words(peer.outgoing.front());
  }
  for (; !peer.incoming.empty() && peer.error.empty() && peer.incoming.front().is_done();
       peer.incoming.pop_front()) {
    is_news = true;
    hand_on(process, peer.incoming.front().frame, find);
  }
  return is_news;
} catch (const Error& error) {
  peers_[process].error = error.what();
  return true;
}

void MpiCarrier::keep_words(Transfer& done) { spare_words_.push_back(std::move(done.words)); }

// Receives are posted in the order in which the bytes were sent.
void MpiCarrier::fetch(int process, Incoming& chunk, std::byte* place) {
  if (place == nullptr) {
    chunk.words = std::make_unique_for_overwrite<std::byte[]>(chunk.frame.bytes);
    place = chunk.words.get();
  }
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
  if (static_cast<std::int32_t>(peer.received - count) >= 0) return is_sent(process);
  if (peer.asked != peer.received || !peer.held_back.empty() || !may_send_to(process)) return false;
  peer.question = {};
  begin(peer.question, process, {.kind = tcp::Kind::question, .receiver = 0}, nullptr);
  peer.asked = ++peer.sent;
  return false;
} catch (const Error& error) {
  peers_[process].error = error.what();
  return false;
}

bool MpiCarrier::arm() {
  const bool is_busy = std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
    return !peer.incoming.empty() || !peer.outgoing.empty() || !peer.held_back.empty();
  });
  if (base::now() - news_at_ < (is_busy ? kAwakeWhileBusy : kAwake)) return false;
  const itimerspec once = {.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = kNap}};
  return ::timerfd_settime(timer_.get(), 0, &once, nullptr) == 0;
}

}  // namespace plait::comm::mpi
