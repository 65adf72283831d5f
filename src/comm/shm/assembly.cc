#include "comm/shm/assembly.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/process.h"
#include "base/text.h"
#include "comm/interruption.h"
#include "comm/same_transport.h"
#include "comm/shm/porch.h"
#include "plait/error.h"

namespace plait::comm::shm {
namespace {

using base::Delivery;
using base::Fd;
using base::Message;
using base::Nanoseconds;
using base::sentence;

constexpr const char* kWelcome = "welcome";

// How much longer than rank 0 the others wait, so that they hear its verdict.
constexpr Nanoseconds kGrace = base::kSecond;

// How long rank 0 stays to tell the ranks that come later that the group has failed.
constexpr Nanoseconds kLinger = base::kSecond;

constexpr Nanoseconds kBetweenLooks = 20 * base::kMillisecond;

// What is added to the sentence about a rank that has not come.
std::string behind(const std::string& obstacle) { return obstacle.empty() ? "" : "; " + obstacle; }

// Rank 0's side, until all ranks have come.
class Doorkeeper {
 public:
  Doorkeeper(MeetingPlace place, const Seat& seat, const Watch& watch)
      : porch_(std::move(place)),
        seat_(seat),
        watch_(watch),
        guests_(seat.world),
        told_(seat.world),
        pids_(seat.world) {
    pids_[0] = ::getpid();
  }

  std::vector<Fd> run() {
    const Interruption interruption;
    try {
      return gather_or_refuse(interruption);
    } catch (...) {
      // Those that hear nothing call again, and would wait until their deadline.
      if (interruption.has_come()) {
        const std::string verdict = tell_guests(
            Code::peer_lost, 0,
            sentence("rank 0 (pid ", pids_[0], ") was interrupted while the group was assembling"));
        try {
          turn_away_callers(verdict, 0);
        } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the interruption is what counts
        }
      }
      throw;
    }
  }

 private:
  std::vector<Fd> gather_or_refuse(const Interruption& interruption) {
    try {
      return gather();
    } catch (const Error& error) {
      if (interruption.has_come()) throw;
      if (error.code() != Code::system || error.culprit() != Error::kNobody) throw;
      // The ranks that have come, and those that still come, would take rank 0 for gone.
      const std::string verdict =
          tell_guests(Code::system, 0, sentence("rank 0 (pid ", pids_[0], "): ", error.what()));
      try {
        porch_.make_room();
        turn_away_the_late(verdict);
      } catch (const Error&) {  // no room even for that
        if (interruption.has_come()) throw;
      }
      raise_failure(verdict);
    }
  }

  std::vector<Fd> gather() {
    const Nanoseconds deadline = base::now() + seat_.timeout;
    while (!absent().empty()) {
      if (watch_) watch_(absent().front());
      if (base::now() >= deadline) refuse_for_missing();
      heard_ = porch_.wait(everyone(), deadline - base::now());
      while (!heard_.empty()) {
        Guest guest = std::move(heard_.back());
        heard_.pop_back();
        seat_guest(guest);
      }
      look_for_losses();
    }
    // Closed before any rank is welcomed: a rank that is may at once assemble anew under this name.
    porch_.close();
    for (const Fd& guest : guests_) {
      if (guest) base::send_message(guest, kWelcome, Fd());
    }
    return std::move(guests_);
  }

  std::vector<int> absent() const {
    std::vector<int> ranks;
    for (int rank = 1; rank < seat_.world; ++rank) {
      if (!guests_[rank] && !told_[rank]) ranks.push_back(rank);
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
    if (said.build != seat_.build) {
      refuse(guest, Code::mismatch,
             sentence("rank ", said.rank, " (pid ", said.pid, ") runs plait ", said.build,
                      ", rank 0 (pid ", pids_[0], ") plait ", seat_.build,
                      ": all ranks must run the same build"));
    }
    if (said.transport != kShm) {
      const Error why = transports_differ(said.rank, said.transport, 0, kShm);
      refuse(guest, why.code(), why.what());
    }
    if (said.world != seat_.world) {
      refuse(guest, Code::mismatch,
             sentence("rank ", said.rank, " (pid ", said.pid, ") was started in a world of ",
                      said.world, ", rank 0 in one of ", seat_.world));
    }
    if (!is_rank(said.rank)) {
      refuse(
          guest, Code::invalid_argument,
          sentence("pid ", said.pid, " claims rank ", said.rank, " in a world of ", seat_.world));
    }
    if (said.rank == 0 || guests_[said.rank]) {
      refuse(
          guest, Code::invalid_argument,
          claimants(pids_[said.rank], said.pid, sentence("rank ", said.rank, " of ", seat_.world)));
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
                               ") has died or given up while the group was assembling"));
      turn_away_the_late(verdict);
      raise_failure(verdict);
    }
  }

  [[noreturn]] void refuse_for_missing() {
    const std::vector<int> late = absent();
    raise_failure(
        tell_guests(Code::timeout, late.front(),
                    sentence("rank", late.size() > 1 ? "s " : " ", base::show_list(late), " of ",
                             seat_.world, late.size() > 1 ? " have" : " has", " not come within ",
                             base::show_duration(seat_.timeout), behind(porch_.obstacle()))));
  }

  [[noreturn]] void refuse(Guest& guest, Code code, const std::string& reason) {
    const std::string verdict = tell_guests(code, guest.said.rank, reason);
    turn_away(guest, verdict);
    turn_away_the_late(verdict);
    raise_failure(verdict);
  }

  std::string tell_guests(Code code, int culprit, const std::string& reason) const {
    std::string verdict = encode_failure(Error(code, reason, culprit));
    for (const Fd& guest : guests_) {
      if (guest) base::send_message(guest, verdict, Fd());
    }
    return verdict;
  }

  // Ranks do not start at the same moment: those that come a little later would wait in vain. Where
  // there is a group already, it tells them.
  void turn_away_the_late(const std::string& verdict) {
    for (const Guest& guest : std::exchange(heard_, {})) turn_away(guest, verdict);
    const Nanoseconds end = base::now() + kLinger;
    while (!seat_.in_group && !absent().empty() && base::now() < end) {
      if (watch_) watch_(absent().front());
      turn_away_callers(verdict, end - base::now());
    }
  }

  // A rank that knows the verdict already and calls again wants the next group: where this rank
  // hangs up without a word, it goes on calling.
  void turn_away_callers(const std::string& verdict, Nanoseconds longest) {
    for (const Guest& guest : porch_.wait({}, longest)) {
      if (!knows_verdict(guest.said.rank)) turn_away(guest, verdict);
    }
  }

  bool knows_verdict(int rank) const { return is_rank(rank) && (guests_[rank] || told_[rank]); }

  bool is_rank(int rank) const { return rank >= 0 && rank < seat_.world; }

  // It finds the verdict though the connection is closed behind it.
  void turn_away(const Guest& guest, const std::string& verdict) {
    base::send_message(guest.socket, verdict, Fd());
    if (is_rank(guest.said.rank)) told_[guest.said.rank] = true;
  }

  Porch porch_;
  Seat seat_;
  const Watch& watch_;
  std::vector<Guest> heard_;  // callers that have said which rank they are
  std::vector<Fd> guests_;
  std::vector<bool> told_;  // ranks that have been turned away
  std::vector<long> pids_;
};

// Rank 0, as far as a rank that has called it knows it.
struct Leader {
  explicit Leader(Fd connection)
      : socket(std::move(connection)),
        pid(base::credentials_of(socket).pid),
        start(base::start_of(pid)) {}

  Fd socket;
  pid_t pid;
  std::uint64_t start;  // see base::start_of()
};

// Rank 0 of ranks that meet through the caller's all-gather listens before they know the name, and
// never again under this one.
bool has_given_up(const std::string& name, const Seat& seat) {
  return !seat.in_group && is_secret_name(name) && base::is_abandoned(name);
}

// `before`: a rank 0 that has hung up, if there is one. It is called again until the deadline.
Leader call_leader(Finder& finder, const Seat& seat, const Watch& watch, Nanoseconds deadline,
                   const Leader* before) {
  const std::string who = before == nullptr ? "rank 0" : sentence("rank 0 (pid ", before->pid, ')');
  for (;;) {
    const bool may_call = before == nullptr || base::now() < deadline;
    auto leader = may_call ? finder.call() : std::nullopt;
    if (leader) return Leader(std::move(*leader));
    if (before != nullptr && base::has_ended(Fd(), before->pid, before->start)) {
      finder.clear_up();
      throw Error(Code::peer_lost, who + " has gone while the group was assembling", 0);
    }
    if (watch) watch(0);
    if (has_given_up(finder.name(), seat)) {
      throw Error(Code::peer_lost,
                  sentence(who, " has died or given up before rank ", seat.rank, " has met it"), 0);
    }
    if (base::now() >= deadline) {
      throw Error(
          Code::timeout,
          sentence("rank 0 of ", seat.world, " has not come within ",
                   base::show_duration(seat.timeout), ", or its group is complete without rank ",
                   seat.rank, behind(finder.obstacle())),
          0);
    }
    ::usleep(2000);
  }
}

// Whether rank 0 welcomes this rank. If not, it has hung up without a word.
bool is_welcome(const Leader& leader, const Seat& seat, const Watch& watch) {
  const Nanoseconds deadline = base::now() + seat.timeout + kGrace;
  base::send_message(leader.socket, write(Hello{seat.rank, seat.world, ::getpid(), seat.build}),
                     Fd());
  for (;;) {
    Message message;
    const Delivery delivery = base::receive_message(leader.socket, message);
    if (delivery == Delivery::done) {
      if (is_failure(message.bytes)) raise_failure(message.bytes);
      if (message.bytes == kWelcome) return true;
    }
    if (watch) watch(0);
    if (delivery == Delivery::closed) return false;
    if (base::now() >= deadline) {
      throw Error(Code::timeout,
                  sentence("rank 0 (pid ", leader.pid, ") has said nothing for ",
                           base::show_duration(seat.timeout)),
                  0);
    }
    base::wait_readable({&leader.socket}, std::min(deadline - base::now(), kBetweenLooks));
  }
}

}  // namespace

std::vector<Fd> assemble(MeetingPlace place, const Seat& seat, const Watch& watch) {
  return Doorkeeper(std::move(place), seat, watch).run();
}

// A rank 0 that hangs up without a word has died, or it has left a group that failed while this
// rank was calling: then it may assemble another one.
Fd attend(const std::string& name, const Seat& seat, const Watch& watch) {
  Finder finder(name);
  const Nanoseconds deadline = base::now() + seat.timeout;
  Leader leader = call_leader(finder, seat, watch, deadline, nullptr);
  while (!is_welcome(leader, seat, watch)) {
    ::usleep(2000);
    leader = call_leader(finder, seat, watch, deadline, &leader);
  }
  return std::move(leader.socket);
}

std::string encode_failure(const Error& error) {
  return sentence('!', static_cast<int>(error.code()), ' ', error.culprit(), ' ', error.what());
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
