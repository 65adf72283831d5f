#include "comm/shm/porch.h"

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

// Those that don't say which build they are: other builds, then.
constexpr std::string_view kFormerGreeting = "plait-1";

// A greeting has so many; a rank that uses another transport than shm adds that one's name (see
// transport_check.h).
constexpr std::size_t kWords = 5;

// A rank says its number as soon as it calls. At most kMostSilent callers that have said nothing
// are kept at a time; where there are as many, each is kept for at most kSilence.
constexpr std::size_t kMostSilent = 64;
constexpr Nanoseconds kSilence = 250 * base::kMillisecond;

constexpr int kMostAtATime = 64;

constexpr Nanoseconds kBetweenLooks = 20 * base::kMillisecond;

std::optional<Hello> read(const std::string& text) {
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
  return Hello{.rank = static_cast<int>(*rank),
               .world = static_cast<int>(*world),
               .pid = *pid,
               .build = is_former ? "of an older build" : std::string(words[4]),
               .transport = has_transport ? std::string(words[kWords]) : kShm};
}

}  // namespace

std::string write(const Hello& hello) {
  const std::string text = base::sentence(kGreeting, ' ', hello.rank, ' ', hello.world, ' ',
                                          hello.pid, ' ', hello.build);
  return hello.transport == kShm ? text : text + ' ' + hello.transport;
}

Porch::Porch(MeetingPlace place)
    : place_(std::move(place)),
      spare_(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
      most_(kMostSilent) {
  if (!spare_) base::fail_errno("cannot open /dev/null");
}

std::vector<Guest> Porch::wait(std::vector<const Fd*> others, Nanoseconds longest) {
  for (const Fd& listener : place_.listeners()) {
    if (callers_.size() < most_) others.push_back(&listener);
  }
  for (const Caller& caller : callers_) others.push_back(&caller.socket);
  base::wait_readable(others, std::min(longest, kBetweenLooks));
  let_in();
  return hear();
}

void Porch::close() {
  place_.close();
  spare_.reset();
}

void Porch::make_room() {
  spare_.reset();
  most_ = callers_.size() + 1;
}

void Porch::let_in() {
  for (const Fd& listener : place_.listeners()) let_in(listener);
}

// At most kMostAtATime in one turn, other users' too: there may always be one more.
void Porch::let_in(const Fd& listener) {
  for (int accepted = 0; accepted < kMostAtATime && callers_.size() < most_; ++accepted) {
    auto caller = base::accept_from(listener);
    if (!caller) return;
    if (base::credentials_of(*caller).uid == ::geteuid())
      callers_.push_back({.socket = std::move(*caller), .since = base::now()});
  }
}

std::vector<Guest> Porch::hear() {
  std::vector<Guest> guests;
  std::vector<Caller> silent;
  const bool crowded = callers_.size() >= most_;
  const Nanoseconds patient_since = base::now() - kSilence;
  for (Caller& caller : callers_) {
    base::Message message;
    const Delivery delivery = base::receive_message(caller.socket, message);
    if (delivery == Delivery::not_yet) {
      const bool patience_ends = crowded && caller.since < patient_since;
      if (!patience_ends) silent.push_back(std::move(caller));
    } else if (delivery == Delivery::done) {
      const auto said = read(message.bytes);
      if (said) guests.push_back({.said = *said, .socket = std::move(caller.socket)});
    }
  }
  callers_ = std::move(silent);
  return guests;
}

}  // namespace plait::comm::shm
