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
  if (!rank || !world || !pid) return std::nullopt;
  return Hello{.rank = static_cast<int>(*rank), .world = static_cast<int>(*world), .pid = *pid};
}

// Rank 0's side, until everybody sits.
class Doorkeeper {
 public:
  Doorkeeper(Fd listener, const Seat& seat)
      : listener_(std::move(listener)), seat_(seat), guests_(seat.world), pids_(seat.world) {
    pids_[0] = ::getpid();
  }

  std::vector<Fd> run() {
    const Nanoseconds deadline = base::now() + seat_.timeout;
    while (!absent().empty()) {
      if (base::now() >= deadline) refuse_for_missing();
      base::wait_readable(everyone(), deadline - base::now());
      while (auto caller = base::accept_from(listener_)) {
        if (base::credentials_of(*caller).uid == ::geteuid())
          callers_.push_back(std::move(*caller));
      }
      hear_callers();
      look_for_losses();
    }
    // Closed before anybody is welcomed: who is welcomed may at once assemble anew under this name.
    listener_.reset();
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
    std::vector<const Fd*> all = {&listener_};
    for (const Fd& caller : callers_) all.push_back(&caller);
    for (const Fd& guest : guests_) {
      if (guest) all.push_back(&guest);
    }
    return all;
  }

  void hear_callers() {
    std::vector<Fd> silent;
    for (Fd& caller : callers_) {
      Message message;
      const Delivery delivery = base::receive_message(caller, message);
      if (delivery == Delivery::not_yet) silent.push_back(std::move(caller));
      if (delivery != Delivery::done) continue;
      if (const auto said = parse_hello(message.bytes)) seat_guest(*said, std::move(caller));
    }
    callers_ = std::move(silent);
  }

  void seat_guest(const Hello& said, Fd guest) {
    if (said.world != seat_.world) {
      refuse(&guest, Code::mismatch, said.rank,
             sentence("rank ", said.rank, " (pid ", said.pid, ") was started in a world of ",
                      said.world, ", rank 0 in one of ", seat_.world));
    }
    if (said.rank < 0 || said.rank >= seat_.world) {
      refuse(
          &guest, Code::invalid_argument, said.rank,
          sentence("pid ", said.pid, " claims rank ", said.rank, " in a world of ", seat_.world));
    }
    if (said.rank == 0 || guests_[said.rank]) {
      refuse(&guest, Code::invalid_argument, said.rank,
             sentence("two processes (pid ", pids_[said.rank], " and pid ", said.pid,
                      ") claim rank ", said.rank, " of ", seat_.world));
    }
    pids_[said.rank] = said.pid;
    guests_[said.rank] = std::move(guest);
  }

  // A guest has nothing to say before it is welcomed: what can be read is the end of its
  // connection.
  void look_for_losses() {
    for (int rank = 1; rank < seat_.world; ++rank) {
      Message message;
      if (!guests_[rank] || base::receive_message(guests_[rank], message) == Delivery::not_yet)
        continue;
      refuse(nullptr, Code::peer_lost, rank,
             sentence("rank ", rank, " (pid ", pids_[rank],
                      ") has died while the group was assembling"));
    }
  }

  [[noreturn]] void refuse_for_missing() {
    const std::vector<int> late = absent();
    refuse(nullptr, Code::timeout, late.front(),
           sentence("rank", late.size() > 1 ? "s " : " ", base::show_list(late), " of ",
                    seat_.world, late.size() > 1 ? " have" : " has", " not come within ",
                    base::show_duration(seat_.timeout)));
  }

  [[noreturn]] void refuse(const Fd* caller, Code code, int culprit, const std::string& reason) {
    const std::string message = encode_failure(static_cast<int>(code), culprit, reason);
    if (caller != nullptr) base::send_message(*caller, message, Fd());
    for (const Fd& guest : guests_) {
      if (guest) base::send_message(guest, message, Fd());
    }
    throw Error(code, reason, culprit);
  }

  Fd listener_;
  Seat seat_;
  std::vector<Fd> guests_;
  std::vector<long> pids_;
  std::vector<Fd> callers_;
};

Fd call_leader(const std::string& name, const Seat& seat) {
  const Nanoseconds deadline = base::now() + seat.timeout;
  for (;;) {
    if (auto leader = base::connect_to(name)) return std::move(*leader);
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

std::vector<Fd> assemble(Fd listener, const Seat& seat) {
  return Doorkeeper(std::move(listener), seat).run();
}

Fd attend(const std::string& name, const Seat& seat) {
  Fd leader = call_leader(name, seat);
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
    if (delivery == Delivery::closed) {
      throw Error(Code::peer_lost,
                  sentence("rank 0 (pid ", host.pid, ") has gone while the group was assembling"),
                  0);
    }
    if (delivery == Delivery::done) {
      if (is_failure(message.bytes)) raise_failure(message.bytes);
      if (message.bytes == kWelcome) return leader;
    }
    if (base::now() >= deadline) {
      throw Error(Code::timeout,
                  sentence("rank 0 (pid ", host.pid, ") has said nothing for ",
                           base::show_duration(seat.timeout)),
                  0);
    }
    base::wait_readable({&leader}, deadline - base::now());
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
