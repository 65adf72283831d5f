#include "comm/engines/threads/factory.h"
#include "comm/mapped/mapped_transport.h"
#include "comm/meet/thread_rendezvous.h"

namespace plait::comm::threads {

Availability available() { return {}; }

Availability supports(const Site& site) {
  if (site.place.world > 1) {
    return {"joins threads of one process (run_in_threads, ThreadGroup), not processes"};
  }
  return {};
}

std::unique_ptr<Transport> create(const Site& site) {
  const auto rendezvous = std::make_shared<ThreadRendezvous>(site.place.world);
  return make_mapped_transport(join(rendezvous, site.place.rank, site.policy.timeout), site.policy);
}

}  // namespace plait::comm::threads
