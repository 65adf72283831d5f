#include "comm/shm/assembly.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <optional>

#include "base/check.h"
#include "base/text.h"
#include "plait/error.h"

namespace plait::comm::shm {
namespace {

using base::Delivery;
using base::Fd;
using base::Message;
using base::Nanoseconds;
using base::sentence;

constexpr const char* kGreeting = "plait-1";  // changes with the set-up's protocol
constexpr const char* kWelcome = "welcome";

// How much longer than rank 0 the others wait, so that they hear its verdict.
constexpr Nanoseconds kGrace = base::kSecond;

// How long rank 0 stays to tell those who come later that it is of no use.
constexpr Nanoseconds kLinger = base::kSecond;

// Whoever calls says who it is at once. Of those who don't, so many are borne at a time, and where
// there are more, each so long.
constexpr std::size_t kMostSilent = 64;
constexpr Nanoseconds kSilence = 250 * base::kMillisecond;

constexpr Nanoseconds kBetweenLooks = 20 * base::kMillisecond;

std::string hello(const Seat& seat) {
  return sentence(kGreeting, ' ', seat.rank, ' ', seat.world, ' ', ::getpid());
}

struct Hello {
  int rank;
  int world;
  long pid;
};

std::optional<Hello> parse_hello(const std::string& text) {
  const auto words = base::split(text, ' ');
  if (words.size() != 4 || words[0] != kGreeting) return std::nullopt;
  const auto rank = base::parse_int(words[1]);
  const auto world = base::parse_int(words[2]);
  const auto pid = base::parse_int(words[3]);
  constexpr std::int64_t kMost = 1 << 20;
  if (!rank || !world || !pid || *rank < -kMost || *rank > kMost || *world > kMost) {
    return std::nullopt;
  }
  return Hello{.rank = static_cast<int>(*rank), .world = static_cast<int>(*world), .pid = *pid};
}

struct Guest {
  Hello said;
  Fd socket;
};

// Those who have called and not yet said who they are.
class Porch {
 public:
  explicit Porch(Fd listener) : listener_(std::move(listener)) {}

  // Waits until somebody calls or speaks, here or at one of `others`; returns who has said who it
  // is.
  std::vector<Guest> wait(std::vector<const Fd*> others, Nanoseconds longest) {
    const bool room = callers_.size() < kMostSilent;
    if (room) others.push_back(&listener_);
    for (const Caller& caller : callers_) others.push_back(&caller.socket);
    base::wait_readable(others, std::min(longest, kBetweenLooks));
    let_in();
    return hear();
  }

  void close() { listener_.reset(); }

 private:
  struct Caller {
    Fd socket;
    Nanoseconds since;
  };

  void let_in() {
    while (callers_.size() < kMostSilent) {
      auto caller = base::accept_from(listener_);
      if (!caller) return;
      if (base::credentials_of(*caller).uid == ::geteuid())
        callers_.push_back({.socket = std::move(*caller), .since = base::now()});
    }
  }

  std::vector<Guest> hear() {
    std::vector<Guest> guests;
    std::vector<Caller> silent;
    const bool crowded = callers_.size() >= kMostSilent;
    const Nanoseconds patient_since = base::now() - kSilence;
    for (Caller& caller : callers_) {
      Message message;
      const Delivery delivery = base::receive_message(caller.socket, message);
      if (delivery == Delivery::not_yet) {
        const bool patience_ends = crowded && caller.since < patient_since;
        if (!patience_ends) silent.push_back(std::move(caller));
      } else if (delivery == Delivery::done) {
        const auto said = parse_hello(message.bytes);
        if (said) guests.push_back({.said = *said, .socket = std::move(caller.socket)});
      }
    }
    callers_ = std::move(silent);
    return guests;
  }

  Fd listener_;
  std::vector<Caller> callers_;
};

// Rank 0's side, until everybody sits.
class Doorkeeper {
 public:
  Doorkeeper(Fd listener, const Seat& seat, const Watch& watch)
      : porch_(std::move(listener)),
        seat_(seat),
        watch_(watch),
        guests_(seat.world),
        pids_(seat.world) {
    pids_[0] = ::getpid();
  }

  std::vector<Fd> run() {
    const Nanoseconds deadline = base::now() + seat_.timeout;
    while (!absent().empty()) {
      if (watch_) watch_(absent().front());
      if (base::now() >= deadline) refuse_for_missing();
      for (Guest& guest : porch_.wait(everyone(), deadline - base::now())) seat_guest(guest);
      look_for_losses();
    }
    // Closed before anybody is welcomed: who is welcomed may at once assemble anew under this name.
    porch_.close();
    for (const Fd& guest : guests_) {
      if (guest) base::send_message(guest, kWelcome, Fd());
    }
    return std::move(guests_);
  }

 private:
  std::vector<int> absent() const {
    std::vector<int> ranks;
    for (int rank = 1; rank < seat_.world; ++rank) {
      if (!guests_[rank]) ranks.push_back(rank);
    }
    return ranks;
  }

  std::vector<const Fd*> everyone() const {
    std::vector<const Fd*> all;
    for (const Fd& guest : guests_) {
      if (guest) all.push_back(&guest);
    }
    return all;
  }

  void seat_guest(Guest& guest) {
    const Hello& said = guest.said;
    if (said.world != seat_.world) {
      refuse(guest, Code::mismatch,
             sentence("rank ", said.rank, " (pid ", said.pid, ") was started in a world of ",
                      said.world, ", rank 0 in one of ", seat_.world));
    }
    if (said.rank < 0 || said.rank >= seat_.world) {
      refuse(
          guest, Code::invalid_argument,
          sentence("pid ", said.pid, " claims rank ", said.rank, " in a world of ", seat_.world));
    }
    if (said.rank == 0 || guests_[said.rank]) {
      refuse(guest, Code::invalid_argument,
             sentence("two processes (pid ", pids_[said.rank], " and pid ", said.pid,
                      ") claim rank ", said.rank, " of ", seat_.world));
    }
    pids_[said.rank] = said.pid;
    guests_[said.rank] = std::move(guest.socket);
  }

  // A guest has nothing to say before it is welcomed: what can be read is the end of its
  // connection.
  void look_for_losses() {
    for (int rank = 1; rank < seat_.world; ++rank) {
      Message message;
      if (!guests_[rank] || base::receive_message(guests_[rank], message) == Delivery::not_yet)
        continue;
      const std::string verdict =
          tell_guests(Code::peer_lost, rank,
                      sentence("rank ", rank, " (pid ", pids_[rank],
                               ") has died while the group was assembling"));
      turn_away_the_late(verdict);
      raise_failure(verdict);
    }
  }

  [[noreturn]] void refuse_for_missing() {
    const std::vector<int> late = absent();
    raise_failure(tell_guests(Code::timeout, late.front(),
                              sentence("rank", late.size() > 1 ? "s " : " ", base::show_list(late),
                                       " of ", seat_.world, late.size() > 1 ? " have" : " has",
                                       " not come within ", base::show_duration(seat_.timeout))));
  }

  [[noreturn]] void refuse(Guest& guest, Code code, const std::string& reason) {
    const std::string verdict = tell_guests(code, guest.said.rank, reason);
    base::send_message(guest.socket, verdict, Fd());
    if (guest.said.rank >= 0 && guest.said.rank < seat_.world)
      guests_[guest.said.rank] = std::move(guest.socket);
    turn_away_the_late(verdict);
    raise_failure(verdict);
  }

  std::string tell_guests(Code code, int culprit, const std::string& reason) const {
    std::string verdict = encode_failure(static_cast<int>(code), culprit, reason);
    for (const Fd& guest : guests_) {
      if (guest) base::send_message(guest, verdict, Fd());
    }
    return verdict;
  }

  // Ranks do not start at the same moment: those who come a little later would wait in vain. Where
  // there is a group already, it tells them.
  void turn_away_the_late(const std::string& verdict) {
    const Nanoseconds end = base::now() + kLinger;
    while (!watch_ && !absent().empty() && base::now() < end) {
      for (Guest& guest : porch_.wait({}, end - base::now())) {
        base::send_message(guest.socket, verdict, Fd());
        if (guest.said.rank >= 0 && guest.said.rank < seat_.world)
          guests_[guest.said.rank] = std::move(guest.socket);
      }
    }
  }

  Porch porch_;
  Seat seat_;
  const Watch& watch_;
  std::vector<Fd> guests_;
  std::vector<long> pids_;
};

Fd call_leader(const std::string& name, const Seat& seat, const Watch& watch) {
  const Nanoseconds deadline = base::now() + seat.timeout;
  for (;;) {
    if (auto leader = base::connect_to(name)) return std::move(*leader);
    if (watch) watch(0);
    if (base::now() >= deadline) {
      throw Error(Code::timeout,
                  sentence("rank 0 of ", seat.world, " has not come within ",
                           base::show_duration(seat.timeout),
                           ", or its group is complete without rank ", seat.rank),
                  0);
    }
    ::usleep(2000);
  }
}

}  // namespace

std::vector<Fd> assemble(Fd listener, const Seat& seat, const Watch& watch) {
  return Doorkeeper(std::move(listener), seat, watch).run();
}

Fd attend(const std::string& name, const Seat& seat, const Watch& watch) {
  Fd leader = call_leader(name, seat, watch);
  const base::Credentials host = base::credentials_of(leader);
  if (host.uid != ::geteuid()) {
    base::fail(Code::system, "the meeting place of this job is held by pid ", host.pid, " of user ",
               host.uid, ", and not by one of user ", ::geteuid(), ": not talking to it");
  }
  const Nanoseconds deadline = base::now() + seat.timeout + kGrace;
  base::send_message(leader, hello(seat), Fd());
  for (;;) {
    Message message;
    const Delivery delivery = base::receive_message(leader, message);
    if (delivery == Delivery::done) {
      if (is_failure(message.bytes)) raise_failure(message.bytes);
      if (message.bytes == kWelcome) return leader;
    }
    if (watch) watch(0);
    if (delivery == Delivery::closed) {
      throw Error(Code::peer_lost,
                  sentence("rank 0 (pid ", host.pid, ") has gone while the group was assembling"),
                  0);
    }
    if (base::now() >= deadline) {
      throw Error(Code::timeout,
                  sentence("rank 0 (pid ", host.pid, ") has said nothing for ",
                           base::show_duration(seat.timeout)),
                  0);
    }
    base::wait_readable({&leader}, std::min(deadline - base::now(), kBetweenLooks));
  }
}

std::string make_secret_name() {
  std::array<unsigned char, 16> random{};
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
    base::fail_errno("cannot get random bytes");
  }
  std::string name = "plait-";
  for (const unsigned char byte : random) {
    std::array<char, 3> hex{};
    std::snprintf(hex.data(), hex.size(), "%02x", byte);
    name += hex.data();
  }
  return name;
}

bool is_secret_name(const std::string& text) {
  return text.size() == sizeof("plait-") - 1 + 32 && text.starts_with("plait-");
}

std::string name_of_job(const std::string& job) {
  constexpr std::size_t kLongest = 80;  // of 107 that a socket's name may have
  std::string name = sentence("plait-", ::geteuid(), '-', job);
  if (name.size() > kLongest) {
    name = sentence(name.substr(0, kLongest - 20), '-', std::hash<std::string>{}(name));
  }
  return name;
}

Fd listen_as_leader(const std::string& name) {
  if (auto listener = base::listen_at(name)) return std::move(*listener);
  const auto holder = base::connect_to(name);
  if (!holder) {
    if (auto listener = base::listen_at(name)) return std::move(*listener);  // it has just gone
    base::fail(Code::system,
               "the meeting place of this job is held by a process that does not answer");
  }
  const base::Credentials who = base::credentials_of(*holder);
  PLAIT_CHECK(who.uid != ::geteuid(), "two processes (pid ", who.pid, " and pid ", ::getpid(),
              ") claim rank 0");
  base::fail(Code::system, "the meeting place of this job is held by pid ", who.pid, " of user ",
             who.uid, ", and not by one of user ", ::geteuid());
}

std::string encode_failure(int code, int culprit, const std::string& reason) {
  return sentence('!', code, ' ', culprit, ' ', reason);
}

void raise_failure(const std::string& message) {
  const auto first = message.find(' ');
  const auto second = message.find(' ', first + 1);
  const auto code = base::parse_int(std::string_view(message).substr(1, first - 1));
  const auto culprit =
      base::parse_int(std::string_view(message).substr(first + 1, second - first - 1));
  throw Error(static_cast<Code>(code.value_or(0)), message.substr(second + 1),
              static_cast<int>(culprit.value_or(Error::kNobody)));
}

}  // namespace plait::comm::shm
