#include "comm/control/mesh.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "base/close_on_fork.h"
#include "base/text.h"
#include "comm/core/deadline.h"

namespace plait::comm::tcp {

using base::Nanoseconds;

namespace {

// About what one poll of the sockets costs.
constexpr Nanoseconds kBetweenMoves = 2 * base::kMicrosecond;

// How often the connections are asked beside a carrier that takes chunks and credits.
constexpr Nanoseconds kBetweenWords = 100 * base::kMicrosecond;

// The most turns in which one call moves all that is here: other threads wait meanwhile.
constexpr int kMostTurns = 64;

// After a failure nothing but its news is worth waiting for.
constexpr Nanoseconds kAfterFailure = 200 * base::kMillisecond;
constexpr Nanoseconds kPollInterval = 10 * base::kMillisecond;

constexpr int kFew = 8;

epoll_event event_of(int process, bool also_for_room) {
  epoll_event event = {};
  event.events = also_for_room ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.u32 = static_cast<std::uint32_t>(process);
  return event;
}

}  // namespace

Mesh::Mesh(int me, std::vector<Neighbor> neighbors, std::vector<base::Fd>& sockets,
           const WaitPolicy& policy)
    : me_(me),
      neighbors_(std::move(neighbors)),
      near_(me, size()),
      given_up_(neighbors_.size()),
      is_slow_(neighbors_.size()),
      is_watched_for_room_(neighbors_.size()),
      find_([this](std::uint32_t number) { return find(number); }),
      find_for_connection_(find_),
      patience_(policy.timeout),
      lost_after_(policy.lost_after) {
  {
    const base::CloseOnFork closing;
    events_ = closing.adopt(::epoll_create1(EPOLL_CLOEXEC));
    bell_ = closing.adopt(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  }
  if (!events_ || !bell_) base::fail_errno("cannot watch the connections of this rank");
  for (int process = 0; process < size(); ++process) {
    if (process == me) continue;
    epoll_event event = event_of(process, false);
    if (::epoll_ctl(events_.get(), EPOLL_CTL_ADD, sockets[process].get(), &event) != 0)
      base::fail_errno("cannot watch the connections of this rank");
  }
  for (int process = 0; process < size(); ++process) {
    connections_.push_back(process == me ? Connection()
                                         : Connection(process, std::move(sockets[process])));
  }
}

Mesh::~Mesh() { deliver(has_failure_.load(std::memory_order_relaxed)); }

void Mesh::carry_by(std::unique_ptr<Carrier> carrier) {
  const std::lock_guard lock(mutex_);
  carrier_ = std::move(carrier);
  credits_are_carried_ = carrier_->takes_credits();
  gate_ = std::make_unique<ChunkOrderGate>(*carrier_, find_, size());
  find_for_connection_ = [gate = gate_.get()](std::uint32_t) { return gate; };
}

std::shared_ptr<const void> Mesh::hold(const base::Region& memory) {
  const std::lock_guard lock(mutex_);
  if (carrier_ != nullptr) return carrier_->hold(memory);
  return std::make_shared<const base::Region>(memory);
}

void Mesh::let_go(std::shared_ptr<const void>& owner) noexcept {
  const std::lock_guard lock(mutex_);
  owner.reset();
}

std::uint32_t Mesh::add(Receiver& receiver) {
  const std::lock_guard lock(mutex_);
  receivers_[++last_number_] = &receiver;
  return last_number_;
}

void Mesh::remove(std::uint32_t number) noexcept {
  const std::lock_guard lock(mutex_);
  receivers_.erase(number);
  for (Connection& connection : connections_) connection.forget(number);
}

void Mesh::send(int process, const Frame& frame, const std::byte* payload,
                std::shared_ptr<const void> owner, Urgency urgency) {
  const std::lock_guard lock(mutex_);
  if (carrier_ != nullptr &&
      (frame.kind == Kind::chunk || (credits_are_carried_ && frame.kind == Kind::credit))) {
    if (!connections_[process].loss().empty()) return;
    return carrier_->send(process, frame, payload, std::move(owner));
  }
  Frame stamped = frame;
  if (carrier_ != nullptr) ChunkOrderGate::stamp(stamped, carrier_->sent_to(process));
  Connection& connection = connections_[process];
  if (frame.kind == Kind::chunk && !connection.has_sent_chunk()) {
    connection.note_chunk(true);
    sent_chunks_.push_back(process);
  }
  connection.queue(stamped, payload, std::move(owner));
  if (urgency == Urgency::now) connection.flush();
  list_unsent(process);
}

void Mesh::list_unsent(int process) {
  const bool is_listed = std::find(unsent_.begin(), unsent_.end(), process) != unsent_.end();
  if (connections_[process].has_unsent() && !is_listed) unsent_.push_back(process);
}

// A frame that has no room now goes out when the thread that reads goes on to send.
void Mesh::reply(int process, Frame frame, const std::string& text) {
  auto kept = std::make_shared<const std::string>(text);
  frame.bytes = kept->size();
  const auto* bytes = reinterpret_cast<const std::byte*>(kept->data());
  connections_[process].queue(frame, bytes, std::move(kept));
  list_unsent(process);
}

void Mesh::send_text(int process, Frame frame, const std::string& text) {
  const auto kept = std::make_shared<const std::string>(text);
  frame.bytes = kept->size();
  send(process, frame, reinterpret_cast<const std::byte*>(kept->data()), kept, Urgency::now);
}

Receiver* Mesh::find(std::uint32_t number) const {
  const auto found = receivers_.find(number);
  return found == receivers_.end() ? nullptr : found->second;
}

// To ask each of a few connections costs less than to ask first which of them to ask, where one of
// them probably has something.
bool Mesh::ask_connections() {
  bool is_news = false;
  if (size() <= kFew && carrier_ == nullptr) {
    for (int process = 0; process < size(); ++process) is_news |= receive_from(process);
  } else {
    std::array<epoll_event, 64> events;
    const int count = ::epoll_wait(events_.get(), events.data(), events.size(), 0);
    for (int i = 0; i < count; ++i) is_news |= receive_from(static_cast<int>(events[i].data.u32));
  }
  asked_at_.store(base::now(), std::memory_order_relaxed);
  return is_news;
}

bool Mesh::move_all(bool asks_connections) {
  bool is_news = asks_connections && ask_connections();
  if (carrier_ != nullptr) {
    is_news |= carrier_->move(find_);
    is_news |= gate_->open();
  }
  for (const int process : unsent_) connections_[process].flush();
  std::erase_if(unsent_, [this](int process) {
    if (connections_[process].has_unsent()) return false;
    watch(process, false);
    return true;
  });
  if (is_news) ring();
  return is_news;
}

bool Mesh::receive_from(int process) {
  Connection& connection = connections_[process];
  return connection.is_open() && connection.receive(find_for_connection_);
}

void Mesh::watch(int process, bool also_for_room) {
  const Connection& connection = connections_[process];
  if (is_watched_for_room_[process] == also_for_room || !connection.is_open()) return;
  epoll_event event = event_of(process, also_for_room);
  ::epoll_ctl(events_.get(), EPOLL_CTL_MOD, connection.socket(), &event);
  is_watched_for_room_[process] = also_for_room;
}

void Mesh::ring() {
  news_.fetch_add(1, std::memory_order_release);  // pairs with news()
  if (sleepers_ == 0 || is_rung_) return;
  const std::uint64_t one = 1;
  is_rung_ = ::write(bell_.get(), &one, sizeof(one)) == sizeof(one);
}

void Mesh::wake() noexcept {
  const std::lock_guard lock(mutex_);
  ring();
}

void Mesh::wake(int process) {
  if (near_.must_wake(process))
    send(process, {.kind = Kind::wake, .receiver = 0}, nullptr, nullptr, Urgency::now);
}

void Mesh::move() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) move_all(true);
}

void Mesh::move_surely() noexcept {
  const std::lock_guard lock(mutex_);
  for (int turn = 0; turn < kMostTurns && move_all(true) && credits_are_carried_; ++turn) {
  }
}

void Mesh::move_now_and_then() noexcept {
  const Nanoseconds age = age_of_words();
  if (!credits_are_carried_) {
    if (age >= kBetweenMoves) move();
    return;
  }
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) move_all(age >= kBetweenWords);
}

void Mesh::end_call() noexcept {
  if (credits_are_carried_ ? age_of_words() >= kBetweenWords : has_urgent()) move_surely();
  if (credits_are_carried_) return;
  const std::lock_guard lock(mutex_);
  for (const int process : sent_chunks_) connections_[process].note_chunk(false);
  sent_chunks_.clear();
}

bool Mesh::has_urgent() {
  const std::lock_guard lock(mutex_);
  return carrier_ != nullptr || std::any_of(unsent_.begin(), unsent_.end(), [this](int process) {
           return connections_[process].has_urgent();
         });
}

Nanoseconds Mesh::age_of_words() const {
  return base::now() - asked_at_.load(std::memory_order_relaxed);
}

void Mesh::sleep(Nanoseconds until, std::uint64_t seen) {
  {
    const std::lock_guard lock(mutex_);
    if (news_.load(std::memory_order_relaxed) != seen) return;  // written under the mutex
    if (carrier_ != nullptr && !carrier_->arm()) return;
    for (const int process : unsent_) watch(process, connections_[process].has_unsent());
    ++sleepers_;
  }
  const int engine = carrier_ == nullptr ? -1 : carrier_->descriptor();
  std::array<pollfd, 3> asked = {{{.fd = events_.get(), .events = POLLIN, .revents = 0},
                                  {.fd = bell_.get(), .events = POLLIN, .revents = 0},
                                  {.fd = engine, .events = POLLIN, .revents = 0}}};
  const Nanoseconds rest = std::max<Nanoseconds>(until - base::now(), 0);
  const timespec longest = {.tv_sec = rest / base::kSecond, .tv_nsec = rest % base::kSecond};
  ::ppoll(asked.data(), asked.size(), &longest, nullptr);
  const std::lock_guard lock(mutex_);
  if (--sleepers_ > 0 || !is_rung_) return;
  std::uint64_t rings = 0;
  is_rung_ = ::read(bell_.get(), &rings, sizeof(rings)) < 0;
}

void Mesh::note_failure() noexcept {
  has_failure_.store(true, std::memory_order_relaxed);
  if (carrier_ != nullptr) carrier_->note_failure();
}

std::string Mesh::route_to(int process) {
  if (process == me_) return {};
  const std::lock_guard lock(mutex_);
  const std::string ends = connections_[process].ends();
  if (ends.empty()) return {};
  if (carrier_ == nullptr) return "tcp: " + ends;
  return base::sentence(carrier_->name(), ": ", ends, ", ", carrier_->route_to(process));
}

std::string Mesh::loss_of(int process, std::uint32_t receiver) {
  if (process == me_) return {};
  const std::lock_guard lock(mutex_);
  connections_[process].check_host(lost_after_);
  list_unsent(process);  // a question
  const Connection& connection = connections_[process];
  if (carrier_ == nullptr) return connection.loss();
  if (carrier_->error_of(process).empty()) {
    // One that leaves closes its connection, perhaps before the carrier has handed on what came
    // before its farewell. If it was killed then, that may never come.
    const bool is_on_its_way = gate_->keeps_farewell(process, receiver) &&
                               base::now() - connection.ended_at() < lost_after_;
    return is_on_its_way ? std::string() : connection.loss();
  }
  // The process may have left in good order, and its farewell is here before the carrier's end is.
  if (receive_from(process)) ring();
  return connection.loss().empty() ? carrier_->error_of(process) : connection.loss();
}

bool Mesh::is_closed_by(int process) {
  const std::lock_guard lock(mutex_);
  return connections_[process].is_closed_by_peer();
}

bool Mesh::is_lost_by_carrier_alone(int process) {
  const std::lock_guard lock(mutex_);
  return carrier_ != nullptr && !carrier_->error_of(process).empty() &&
         connections_[process].loss().empty();
}

bool Mesh::is_sent(int process) {
  const std::lock_guard lock(mutex_);
  if (given_up_[process] || !connections_[process].loss().empty()) return true;
  return !connections_[process].has_unsent() && (carrier_ == nullptr || carrier_->is_sent(process));
}

std::vector<Unsent> Mesh::unsent() {
  const std::lock_guard lock(mutex_);
  std::vector<Unsent> all;
  if (unsent_.empty() && carrier_ == nullptr) return all;
  for (int process = 0; process < size(); ++process) {
    const Connection& connection = connections_[process];
    if (connection.has_urgent() || (carrier_ != nullptr && !carrier_->is_sent(process)))
      all.push_back({.process = process, .last = connection.last_queued()});
  }
  return all;
}

bool Mesh::is_taken(const Unsent& unsent) {
  const std::lock_guard lock(mutex_);
  const Connection& connection = connections_[unsent.process];
  if (given_up_[unsent.process] || !connection.loss().empty()) return true;
  return connection.is_flushed(unsent.last) &&
         (carrier_ == nullptr || carrier_->is_sent(unsent.process));
}

std::uint32_t Mesh::sent_to(int process) {
  const std::lock_guard lock(mutex_);
  return carrier_ == nullptr ? 0 : carrier_->sent_to(process);
}

bool Mesh::is_received(int process, std::uint32_t count) {
  const std::lock_guard lock(mutex_);
  return carrier_ == nullptr || given_up_[process] || !connections_[process].loss().empty() ||
         carrier_->is_received(process, count);
}

void Mesh::give_up_on(int process) noexcept {
  const std::lock_guard lock(mutex_);
  given_up_[process] = true;
}

std::vector<int> Mesh::find_undelivered(bool has_failed) {
  const std::lock_guard lock(mutex_);
  std::vector<int> processes;
  for (int process = 0; process < size(); ++process) {
    if (given_up_[process] || (has_failed && is_slow_[process])) continue;
    if (!connections_[process].is_delivered()) processes.push_back(process);
  }
  return processes;
}

void Mesh::note_slow(int process) {
  const std::lock_guard lock(mutex_);
  is_slow_[process] = true;
}

// The program may never make another call that could throw what is said here.
void Mesh::deliver(bool has_failed) noexcept {
  const Nanoseconds start = base::now();
  Deadline deadline(has_failed ? std::min(kAfterFailure, patience_) : patience_, start);
  Nanoseconds poll_at = 0;
  for (;;) {
    const std::uint64_t seen = news();
    move();
    const std::vector<int> missing = find_undelivered(has_failed);
    if (missing.empty()) return;
    const Nanoseconds now = base::now();
    const bool is_over = deadline.is_over(now);
    for (const int process : missing) {
      if (now >= poll_at) loss_of(process);
      if (!is_over) continue;
      if (has_failed) {  // which was told
        note_slow(process);
        continue;
      }
      give_up_on(process);
      std::fprintf(stderr, "plait: %s has not taken the last frames within %s\n",
                   name_of(process).c_str(), base::show_duration(now - start).c_str());
    }
    if (now >= poll_at) poll_at = now + kPollInterval;
    sleep(std::min(deadline.at(), now + base::kMillisecond), seen);
  }
}

}  // namespace plait::comm::tcp
