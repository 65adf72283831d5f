#include "comm/meet/assembly.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/process.h"
#include "base/text.h"
#include "comm/control/failure_frame.h"
#include "comm/core/deadline.h"
#include "comm/core/interruption.h"
#include "comm/meet/pending_connections.h"
#include "comm/meet/transport_check.h"
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

constexpr Nanoseconds kPollInterval = 20 * base::kMillisecond;

// The addition to the sentence about a rank that has not come.
std::string behind(const std::string& obstacle) { return obstacle.empty() ? "" : "; " + obstacle; }

// Rank 0's side, until all ranks have come.
class Acceptor {
 public:
  Acceptor(MeetingPlace place, const Endpoint& endpoint, const Watch& watch)
      : pending_(std::move(place)),
        endpoint_(endpoint),
        watch_(watch),
        sockets_(endpoint.world),
        rejected_(endpoint.world),
        pids_(endpoint.world) {
    pids_[0] = ::getpid();
  }

  std::vector<Fd> run() {
    const Interruption interruption;
    try {
      return gather_or_refuse(interruption);
    } catch (...) {
      // Ranks that are told nothing call again, and would wait until their deadline.
      if (interruption.has_come()) {
        const std::string verdict = announce_ranks(
            Code::peer_lost, 0,
            sentence("rank 0 (pid ", pids_[0], ") was interrupted while the group was assembling"));
        try {
          reject_callers(verdict, 0);
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
      if (error.code() != Code::system || error.culprit() != Error::kNoRank) throw;
      // The ranks that have come, and those that still come, would think that rank 0 has gone.
      const std::string verdict =
          announce_ranks(Code::system, 0, sentence("rank 0 (pid ", pids_[0], "): ", error.what()));
      try {
        pending_.free_descriptor();
        reject_late_callers(verdict);
      } catch (const Error&) {  // no room even for that
        if (interruption.has_come()) throw;
      }
      raise_failure(verdict);
    }
  }

  std::vector<Fd> gather() {
    Deadline deadline(endpoint_.timeout);
    while (!absent().empty()) {
      if (watch_) watch_(absent().front());
      if (deadline.is_over()) refuse_for_missing();
      callers_ = pending_.wait(admitted_sockets(), deadline.at() - base::now());
      while (!callers_.empty()) {
        KnownCaller caller = std::move(callers_.back());
        callers_.pop_back();
        admit(caller);
      }
      check_for_losses();
    }
    // Closed before any rank is welcomed: a rank that is may at once assemble anew under this name.
    pending_.close();
    for (const Fd& socket : sockets_) {
      if (socket) base::send_message(socket, kWelcome, Fd());
    }
    return std::move(sockets_);
  }

  std::vector<int> absent() const {
    std::vector<int> ranks;
    for (int rank = 1; rank < endpoint_.world; ++rank) {
      if (!sockets_[rank] && !rejected_[rank]) ranks.push_back(rank);
    }
    return ranks;
  }

  std::vector<const Fd*> admitted_sockets() const {
    std::vector<const Fd*> all;
    for (const Fd& socket : sockets_) {
      if (socket) all.push_back(&socket);
    }
    return all;
  }

  void admit(KnownCaller& caller) {
    const ShmHello& hello = caller.hello;
    if (hello.build != endpoint_.build) {
      refuse(caller, Code::mismatch,
             sentence("rank ", hello.rank, " (pid ", hello.pid, ") runs plait ", hello.build,
                      ", rank 0 (pid ", pids_[0], ") plait ", endpoint_.build,
                      ": all ranks must run the same build"));
    }
    if (hello.transport != kShm) {
      const Error why = transports_differ(hello.rank, hello.transport, 0, kShm);
      refuse(caller, why.code(), why.what());
    }
    if (hello.world != endpoint_.world) {
      refuse(caller, Code::mismatch,
             sentence("rank ", hello.rank, " (pid ", hello.pid, ") was started in a world of ",
                      hello.world, ", rank 0 in one of ", endpoint_.world));
    }
    if (!is_rank(hello.rank)) {
      refuse(caller, Code::invalid_argument,
             sentence("pid ", hello.pid, " claims rank ", hello.rank, " in a world of ",
                      endpoint_.world));
    }
    if (hello.rank == 0 || sockets_[hello.rank]) {
      refuse(caller, Code::invalid_argument,
             claimants(pids_[hello.rank], hello.pid,
                       sentence("rank ", hello.rank, " of ", endpoint_.world)));
    }
    pids_[hello.rank] = hello.pid;
    sockets_[hello.rank] = std::move(caller.socket);
  }

  // An admitted rank sends nothing before it is welcomed: what can be read is the end of its
  // connection.
  void check_for_losses() {
    for (int rank = 1; rank < endpoint_.world; ++rank) {
      Message message;
      if (!sockets_[rank] || base::receive_message(sockets_[rank], message) == Delivery::not_yet)
        continue;
      const std::string verdict =
          announce_ranks(Code::peer_lost, rank,
                         sentence("rank ", rank, " (pid ", pids_[rank],
                                  ") has died or given up while the group was assembling"));
      reject_late_callers(verdict);
      raise_failure(verdict);
    }
  }

  [[noreturn]] void refuse_for_missing() {
    const std::vector<int> late = absent();
    raise_failure(announce_ranks(
        Code::timeout, late.front(),
        sentence("rank", late.size() > 1 ? "s " : " ", base::show_list(late), " of ",
                 endpoint_.world, late.size() > 1 ? " have" : " has", " not come within ",
                 base::show_duration(endpoint_.timeout), behind(pending_.obstacle()))));
  }

  [[noreturn]] void refuse(KnownCaller& caller, Code code, const std::string& reason) {
    const std::string verdict = announce_ranks(code, caller.hello.rank, reason);
    reject(caller, verdict);
    reject_late_callers(verdict);
    raise_failure(verdict);
  }

  std::string announce_ranks(Code code, int culprit, const std::string& reason) const {
    std::string verdict = encode_failure(Error(code, reason, culprit));
    for (const Fd& socket : sockets_) {
      if (socket) base::send_message(socket, verdict, Fd());
    }
    return verdict;
  }

  // Ranks do not start at the same moment: those that come a little later would wait in vain. The
  // ranks of a group that exists already learn of the failure through that group.
  void reject_late_callers(const std::string& verdict) {
    for (const KnownCaller& caller : std::exchange(callers_, {})) reject(caller, verdict);
    const Nanoseconds end = base::now() + kLinger;
    while (!endpoint_.in_group && !absent().empty() && base::now() < end) {
      if (watch_) watch_(absent().front());
      reject_callers(verdict, end - base::now());
    }
  }

  // A process that knows the verdict already and calls again wants the next group: where this rank
  // hangs up without a word, it goes on calling.
  void reject_callers(const std::string& verdict, Nanoseconds longest) {
    for (const KnownCaller& caller : pending_.wait({}, longest)) {
      if (!knows_verdict(caller.hello)) reject(caller, verdict);
    }
  }

  bool knows_verdict(const ShmHello& hello) const {
    const int rank = hello.rank;
    return is_rank(rank) && (sockets_[rank] || rejected_[rank]) && pids_[rank] == hello.pid;
  }

  bool is_rank(int rank) const { return rank >= 0 && rank < endpoint_.world; }

  // The caller finds the verdict although the connection is closed right after it.
  void reject(const KnownCaller& caller, const std::string& verdict) {
    base::send_message(caller.socket, verdict, Fd());
    const int rank = caller.hello.rank;
    if (!is_rank(rank)) return;
    rejected_[rank] = true;
    if (!sockets_[rank]) pids_[rank] = caller.hello.pid;
  }

  PendingConnections pending_;
  Endpoint endpoint_;
  const Watch& watch_;
  std::vector<KnownCaller> callers_;  // have said which rank they are
  std::vector<Fd> sockets_;           // by rank: of those that were admitted
  std::vector<bool> rejected_;        // by rank
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
bool has_given_up(const std::string& name, const Endpoint& endpoint) {
  return !endpoint.in_group && is_secret_name(name) && base::is_abandoned(name);
}

// `before`: a rank 0 that has hung up, if there is one. It is called again until the deadline.
Leader call_leader(Finder& finder, const Endpoint& endpoint, const Watch& watch, Deadline& deadline,
                   const Leader* before) {
  const std::string rank_0 =
      before == nullptr ? "rank 0" : sentence("rank 0 (pid ", before->pid, ')');
  for (;;) {
    const bool is_over = deadline.is_over();
    const bool may_call = before == nullptr || !is_over;
    auto leader = may_call ? finder.call() : std::nullopt;
    if (leader) return Leader(std::move(*leader));
    if (before != nullptr && base::has_ended(Fd(), before->pid, before->start)) {
      finder.clear_up();
      throw Error(Code::peer_lost, rank_0 + " has gone while the group was assembling", 0);
    }
    if (watch) watch(0);
    if (has_given_up(finder.name(), endpoint)) {
      throw Error(
          Code::peer_lost,
          sentence(rank_0, " has died or given up before rank ", endpoint.rank, " has met it"), 0);
    }
    if (is_over) {
      throw Error(Code::timeout,
                  sentence("rank 0 of ", endpoint.world, " has not come within ",
                           base::show_duration(endpoint.timeout),
                           ", or its group is complete without rank ", endpoint.rank,
                           behind(finder.obstacle())),
                  0);
    }
    ::usleep(2000);
  }
}

// True if rank 0 welcomes this rank. If not, it has hung up without a word.
bool is_welcome(const Leader& leader, const Endpoint& endpoint, const Watch& watch) {
  Deadline deadline(endpoint.timeout + kGrace);
  base::send_message(leader.socket,
                     write(ShmHello{endpoint.rank, endpoint.world, ::getpid(), endpoint.build}),
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
    if (deadline.is_over()) {
      throw Error(Code::timeout,
                  sentence("rank 0 (pid ", leader.pid, ") has said nothing for ",
                           base::show_duration(endpoint.timeout)),
                  0);
    }
    base::wait_readable({&leader.socket}, std::min(deadline.at() - base::now(), kPollInterval));
  }
}

}  // namespace

std::vector<Fd> assemble(MeetingPlace place, const Endpoint& endpoint, const Watch& watch) {
  return Acceptor(std::move(place), endpoint, watch).run();
}

// A rank 0 that hangs up without a word has died, or it has left a group that failed while this
// rank was calling: then it may assemble another one.
Fd attend(const std::string& name, const Endpoint& endpoint, const Watch& watch) {
  Finder finder(name);
  Deadline deadline(endpoint.timeout);
  Leader leader = call_leader(finder, endpoint, watch, deadline, nullptr);
  while (!is_welcome(leader, endpoint, watch)) {
    ::usleep(2000);
    leader = call_leader(finder, endpoint, watch, deadline, &leader);
  }
  return std::move(leader.socket);
}

std::string encode_failure(const Error& error) { return '!' + tcp::write(failure_of(error)); }

void raise_failure(const std::string& message) {
  const auto failure = tcp::read_failure(message.substr(1));
  if (!failure) base::fail(Code::system, "rank 0 has ended the meeting for an unknown reason");
  throw Error(failure->code, failure->sentence, failure->culprit);
}

}  // namespace plait::comm::shm
