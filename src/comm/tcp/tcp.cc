#include <utility>

#include "base/check.h"
#include "comm/tcp/factory.h"
#include "comm/tcp/meeting.h"
#include "comm/tcp/rendezvous.h"
#include "comm/tcp/tcp_transport.h"

namespace plait::comm::tcp {

Availability available() { return {}; }

Availability supports(const Site& site) {
  if (site.all_gather || rendezvous_from_environment()) return {};
  return {
      "needs to know where rank 0 is: MASTER_ADDR and MASTER_PORT, as torchrun sets them, or "
      "PLAIT_RENDEZVOUS=HOST:PORT"};
}

// The first group has the first number of every process's mesh.
std::unique_ptr<Transport> create(const Site& site) {
  Met met = meet(site);
  WaitPolicy policy = site.policy;
  policy.crowded = met.crowded;
  Members all = {.processes = {}, .numbers = {}, .me = site.place.rank};
  for (int process = 0; process < site.place.world; ++process) {
    all.processes.push_back(process);
    all.numbers.push_back(1);
  }
  auto transport = std::make_unique<TcpTransport>(
      std::make_shared<TcpGroup>(std::move(met.mesh), std::move(all), policy));
  transport->meet_near(site.place.host);
  return transport;
}

}  // namespace plait::comm::tcp
