#include "comm/meet/transport_check.h"

#include <unistd.h>

#include <set>
#include <utility>

#include "base/check.h"
#include "comm/core/build_name.h"
#include "comm/meet/assembly.h"

namespace plait::comm {

Error transports_differ(int rank, const std::string& transport, int other,
                        const std::string& its_transport) {
  return {Code::mismatch,
          base::sentence("rank ", rank, " uses the transport ", transport, ", rank ", other, ' ',
                         its_transport, ": PLAIT_TRANSPORT must be the same for all ranks"),
          rank};
}

namespace shm {
namespace {

using base::Nanoseconds;

// Most jobs have met by then, and none of their ranks has had to call.
constexpr Nanoseconds kFirstPoll = 50 * base::kMillisecond;
constexpr Nanoseconds kPollInterval = 20 * base::kMillisecond;

// How long rank 0 stays to tell the ranks that come later that they are refused.
constexpr Nanoseconds kLinger = base::kSecond;

}  // namespace

// If the place is taken, or can't be had, rank 0 goes without it: the check is no condition of
// connecting.
TransportCheck::TransportCheck(const Site& site)
    : rank_(site.place.rank),
      world_(site.place.world),
      transport_(site.transport),
      poll_at_(base::now() + (rank_ == 0 ? 0 : kFirstPoll)) {
  const std::string name = name_of_job(site.place.job);
  try {
    if (rank_ == 0) {
      pending_.emplace(MeetingPlace(name, base::now()));
    } else {
      finder_.emplace(name);
    }
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch)
  }
}

void TransportCheck::poll() {
  const Nanoseconds now = base::now();
  if (now < poll_at_) return;
  poll_at_ = now + kPollInterval;
  if (pending_) poll_as_rank_0(*pending_);
  if (finder_) poll_as_other_rank(*finder_);
}

void TransportCheck::poll_as_rank_0(PendingConnections& pending) {
  std::vector<KnownCaller> heard;
  try {
    heard = pending.wait({}, 0);
  } catch (const Error&) {  // there are no descriptors for it
    callers_.clear();       // they hold some
    return pending_.reset();
  }
  const KnownCaller* other = nullptr;
  for (KnownCaller& caller : heard) {
    // Another build is refused by the transport.
    if (caller.hello.build == build_name()) callers_.push_back(std::move(caller));
  }
  for (const KnownCaller& caller : callers_) {
    if (caller.hello.transport != transport_) other = &caller;
  }
  if (other != nullptr) refuse(*other, pending);
}

void TransportCheck::refuse(const KnownCaller& caller, PendingConnections& pending) {
  const std::string verdict =
      encode_failure(transports_differ(caller.hello.rank, caller.hello.transport, 0, transport_));
  std::set<int> told;
  // A rank that calls again after it was told wants the next group, and goes on calling.
  const auto announce = [&](const KnownCaller& one) {
    if (told.insert(one.hello.rank).second) base::send_message(one.socket, verdict, base::Fd());
  };
  for (const KnownCaller& one : callers_) announce(one);
  const Nanoseconds end = base::now() + kLinger;
  while (static_cast<int>(told.size()) < world_ - 1 && base::now() < end) {
    for (const KnownCaller& late : pending.wait({}, end - base::now())) announce(late);
  }
  raise_failure(verdict);
}

void TransportCheck::poll_as_other_rank(Finder& finder) {
  if (!rank_0_) {
    try {
      auto found = finder.call();
      if (!found) return;
      rank_0_ = std::move(*found);
    } catch (const Error&) {  // another user's process is there
      return finder_.reset();
    }
    const ShmHello hello = {.rank = rank_,
                            .world = world_,
                            .pid = ::getpid(),
                            .build = std::string(build_name()),
                            .transport = transport_};
    base::send_message(rank_0_, write(hello), base::Fd());
  }
  base::Message message;
  const base::Delivery delivery = base::receive_message(rank_0_, message);
  if (delivery == base::Delivery::done && is_failure(message.bytes)) raise_failure(message.bytes);
  if (delivery == base::Delivery::closed) rank_0_.reset();
}

}  // namespace shm
}  // namespace plait::comm
