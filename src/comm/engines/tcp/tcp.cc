#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "comm/control/rendezvous.h"
#include "comm/engines/tcp/factory.h"
#include "comm/engines/tcp/tcp_transport.h"
#include "comm/meet/meeting.h"

namespace plait::comm::tcp {

Availability available() { return {}; }

Availability supports(const Site& site) {
  if (site.all_gather || rendezvous_from_environment()) return {};
  return {
      "needs to know where rank 0 is: MASTER_ADDR and MASTER_PORT, as torchrun sets them, or "
      "PLAIT_RENDEZVOUS=HOST:PORT"};
}

namespace {

constexpr base::Nanoseconds kUntilConnectionEnds = 100 * base::kMillisecond;

// The carrier is connected when its first messages have gone. Until then it would hold back what a
// rank posts, even where the rank leaves a barrier and then makes no call for long. All ranks stay
// here for each other's connections.
//
// A failure of this rank alone is one of the group's: the others wait for it. Where a peer has
// died, the carrier may fail a moment before the peer's connection ends, which tells the reason.
void carry(TcpGroup& all, const MakeCarrier& make_carrier) try {
  all.mesh()->carry_by(make_carrier(all));
  all.await_sent();
  all.all_gather("connected");
} catch (const Error& error) {
  if (all.was_interrupted()) throw;
  const base::Nanoseconds until = base::now() + kUntilConnectionEnds;
  while (error.culprit() == Error::kNoRank && !all.failed() && base::now() < until) {
    all.check_for_losses(
        [&] { return base::sentence("rank ", all.rank(), " connects to the others"); });
    base::sleep_until(base::now() + base::kMillisecond);
  }
  all.fail_and_raise(failure_of(error));
}

}  // namespace

// The first group has the first number of every process's mesh.
std::unique_ptr<Transport> create(const Site& site, const MakeCarrier& make_carrier) {
  MeetResult met = meet(site);
  WaitPolicy policy = site.policy;
  policy.oversubscribed = met.oversubscribed;
  Members all = {.processes = {}, .numbers = {}, .me = site.place.rank};
  for (int process = 0; process < site.place.world; ++process) {
    all.processes.push_back(process);
    all.numbers.push_back(1);
  }
  auto group = std::make_shared<TcpGroup>(std::move(met.mesh), std::move(all), policy);
  auto transport = std::make_unique<TcpTransport>(group);
  try {
    if (make_carrier) carry(*group, make_carrier);
    transport->meet_near(site.place.host);
  } catch (...) {
    // Passes on the reason: a rank that still connects may hear it from this one alone.
    transport->leave();
    throw;
  }
  return transport;
}

std::unique_ptr<Transport> create(const Site& site) { return create(site, nullptr); }

}  // namespace plait::comm::tcp
