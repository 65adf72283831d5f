#include "comm/tcp/mesh.h"

#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/text.h"

namespace plait::comm::tcp {

using base::Nanoseconds;

namespace {

// What one look at the sockets costs, or so.
constexpr Nanoseconds kBetweenMoves = 2 * base::kMicrosecond;

// After a failure nothing but its news is worth waiting for.
constexpr Nanoseconds kAfterFailure = 200 * base::kMillisecond;
constexpr Nanoseconds kBetweenLooks = 10 * base::kMillisecond;

}  // namespace

Mesh::Mesh(int me, std::vector<Neighbor> neighbors, std::vector<base::Fd> sockets,
           Nanoseconds patience)
    : me_(me), neighbors_(std::move(neighbors)), given_up_(neighbors_.size()), patience_(patience) {
  for (int process = 0; process < size(); ++process) {
    connections_.push_back(process == me ? Connection()
                                         : Connection(process, std::move(sockets[process])));
  }
}

Mesh::~Mesh() { deliver(); }

Nanoseconds Mesh::patience() const {
  return has_failure_.load(std::memory_order_relaxed) ? std::min(kAfterFailure, patience_)
                                                      : patience_;
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
  Connection& connection = connections_[process];
  connection.queue(frame, payload, std::move(owner));
  if (urgency == Urgency::now) connection.flush();
}

void Mesh::send_text(int process, Frame frame, const std::string& text) {
  const auto kept = std::make_shared<const std::string>(text);
  frame.bytes = kept->size();
  send(process, frame, reinterpret_cast<const std::byte*>(kept->data()), kept, Urgency::now);
}

void Mesh::move_all() {
  const Connection::Find find = [this](std::uint32_t number) -> Receiver* {
    const auto found = receivers_.find(number);
    return found == receivers_.end() ? nullptr : found->second;
  };
  for (Connection& connection : connections_) {
    if (!connection.end().empty()) continue;
    connection.receive(find);
    if (connection.has_unsent()) connection.flush();
  }
  moved_at_.store(base::now(), std::memory_order_relaxed);
}

void Mesh::move() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) move_all();
}

void Mesh::move_surely() noexcept {
  const std::lock_guard lock(mutex_);
  move_all();
}

void Mesh::move_now_and_then() noexcept {
  if (base::now() - moved_at_.load(std::memory_order_relaxed) >= kBetweenMoves) move();
}

void Mesh::sleep(Nanoseconds until) {
  std::vector<pollfd> sockets;
  {
    const std::lock_guard lock(mutex_);
    for (const Connection& connection : connections_) {
      if (!connection.end().empty()) continue;
      const auto events = static_cast<short>(connection.has_unsent() ? POLLIN | POLLOUT : POLLIN);
      sockets.push_back({.fd = connection.socket(), .events = events, .revents = 0});
    }
  }
  const Nanoseconds rest = std::max<Nanoseconds>(until - base::now(), 0);
  const timespec longest = {.tv_sec = rest / base::kSecond, .tv_nsec = rest % base::kSecond};
  ::ppoll(sockets.data(), sockets.size(), &longest, nullptr);
}

std::string Mesh::loss_of(int process) {
  if (process == me_) return {};
  const std::lock_guard lock(mutex_);
  connections_[process].check_host();
  return connections_[process].end();
}

bool Mesh::is_sent(int process) {
  const std::lock_guard lock(mutex_);
  return given_up_[process] || !connections_[process].end().empty() ||
         !connections_[process].has_unsent();
}

void Mesh::give_up_on(int process) noexcept {
  const std::lock_guard lock(mutex_);
  given_up_[process] = true;
}

std::vector<int> Mesh::find_undelivered() {
  const std::lock_guard lock(mutex_);
  std::vector<int> processes;
  for (int process = 0; process < size(); ++process) {
    if (!given_up_[process] && !connections_[process].is_delivered()) processes.push_back(process);
  }
  return processes;
}

// The program may never make another call that could throw what is said here.
void Mesh::deliver() noexcept {
  const Nanoseconds start = base::now();
  const Nanoseconds until = start + patience();
  Nanoseconds look_at = 0;
  for (;;) {
    move();
    const std::vector<int> missing = find_undelivered();
    if (missing.empty()) return;
    const Nanoseconds now = base::now();
    for (const int process : missing) {
      if (now >= look_at) loss_of(process);
      if (now < until) continue;
      give_up_on(process);
      if (has_failure_.load(std::memory_order_relaxed)) continue;  // which was told
      std::fprintf(stderr, "plait: %s has not taken the last frames within %s\n",
                   name_of(process).c_str(), base::show_duration(now - start).c_str());
    }
    if (now >= look_at) look_at = now + kBetweenLooks;
    sleep(std::min(until, now + base::kMillisecond));
  }
}

}  // namespace plait::comm::tcp
