#include "comm/meet/pending_connections.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace plait::comm::shm {

using base::Delivery;
using base::Fd;
using base::Nanoseconds;

namespace {

constexpr std::string_view kGreeting = "plait-2";

// The greeting of older builds, which does not say which build it comes from.
constexpr std::string_view kFormerGreeting = "plait-1";

// The words of a greeting. A rank that uses another transport than shm adds that transport's name
// (see transport_check.h).
constexpr std::size_t kWords = 5;

// A rank says its number as soon as it calls. At most kMostSilent callers that have said nothing
// are kept at a time; once there are so many, each is kept for at most kSilence.
constexpr std::size_t kMostSilent = 64;
constexpr Nanoseconds kSilence = 250 * base::kMillisecond;

constexpr int kMostAtATime = 64;

constexpr Nanoseconds kPollInterval = 20 * base::kMillisecond;

std::optional<ShmHello> read(const std::string& text) {
  const auto words = base::split(text, ' ');
  const bool is_former = words.size() == 4 && words[0] == kFormerGreeting;
  const bool has_transport = words.size() == kWords + 1;
  const bool is_greeting = (words.size() == kWords || has_transport) && words[0] == kGreeting;
  if (!is_former && !is_greeting) return std::nullopt;
  const auto rank = base::parse_int(words[1]);
  const auto world = base::parse_int(words[2]);
  const auto pid = base::parse_int(words[3]);
  constexpr std::int64_t kMost = 1 << 20;
  if (!rank || !world || !pid || *rank < -kMost || *rank > kMost || *world > kMost) {
    return std::nullopt;
  }
  return ShmHello{.rank = static_cast<int>(*rank),
                  .world = static_cast<int>(*world),
                  .pid = *pid,
                  .build = is_former ? "of an older build" : std::string(words[4]),
                  .transport = has_transport ? std::string(words[kWords]) : kShm};
}

}  // namespace

std::string write(const ShmHello& hello) {
  const std::string text = base::sentence(kGreeting, ' ', hello.rank, ' ', hello.world, ' ',
                                          hello.pid, ' ', hello.build);
  return hello.transport == kShm ? text : text + ' ' + hello.transport;
}

PendingConnections::PendingConnections(MeetingPlace place)
    : place_(std::move(place)),
      spare_(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
      most_(kMostSilent) {
  if (!spare_) base::fail_errno("cannot open /dev/null");
}

std::vector<KnownCaller> PendingConnections::wait(std::vector<const Fd*> others,
                                                  Nanoseconds longest) {
  for (const Fd& listener : place_.listeners()) {
    if (pending_.size() < most_) others.push_back(&listener);
  }
  for (const Pending& one : pending_) others.push_back(&one.socket);
  base::wait_readable(others, std::min(longest, kPollInterval));
  accept();
  return receive_hellos();
}

void PendingConnections::close() {
  place_.close();
  spare_.reset();
}

void PendingConnections::free_descriptor() {
  spare_.reset();
  most_ = pending_.size() + 1;
}

void PendingConnections::accept() {
  for (const Fd& listener : place_.listeners()) accept_from(listener);
}

// Accepts at most kMostAtATime in one turn, other users' callers included: the queue may never
// become empty.
void PendingConnections::accept_from(const Fd& listener) {
  for (int accepted = 0; accepted < kMostAtATime && pending_.size() < most_; ++accepted) {
    auto caller = base::accept_from(listener);
    if (!caller) return;
    if (base::credentials_of(*caller).uid == ::geteuid())
      pending_.push_back({.socket = std::move(*caller), .since = base::now()});
  }
}

std::vector<KnownCaller> PendingConnections::receive_hellos() {
  std::vector<KnownCaller> callers;
  std::vector<Pending> silent;
  const bool is_full = pending_.size() >= most_;
  const Nanoseconds patient_since = base::now() - kSilence;
  for (Pending& one : pending_) {
    base::Message message;
    const Delivery delivery = base::receive_message(one.socket, message);
    if (delivery == Delivery::not_yet) {
      const bool is_dropped = is_full && one.since < patient_since;
      if (!is_dropped) silent.push_back(std::move(one));
    } else if (delivery == Delivery::done) {
      const auto hello = read(message.bytes);
      if (hello) callers.push_back({.hello = *hello, .socket = std::move(one.socket)});
    }
  }
  pending_ = std::move(silent);
  return callers;
}

}  // namespace plait::comm::shm
