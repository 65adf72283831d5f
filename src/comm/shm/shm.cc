#include "comm/mapped/mapped_transport.h"
#include "comm/shm/factory.h"
#include "comm/shm/hub.h"

#include "base/check.h"

namespace plait::comm::shm {

Availability available() { return {}; }

Availability supports(const Site& site) {
  if (site.place.hosts > 1) {
    return {base::sentence("shares the memory of one host; these ranks are on ", site.place.hosts)};
  }
  return {};
}

std::unique_ptr<Transport> create(const Site& site) {
  const Seat seat = {
      .rank = site.place.rank, .world = site.place.world, .timeout = site.policy.timeout};
  if (!site.all_gather) {
    // Nobody looks for a rank that is alone, and others may be alone too.
    const std::string name = seat.world == 1 ? make_secret_name() : name_of_job(site.place.job);
    return make_mapped_transport(meet_at(name, seat), site.policy);
  }
  // The caller's own store carries a name that nobody else can guess.
  const std::string name = seat.rank == 0 ? make_secret_name() : "";
  base::Fd listener = seat.rank == 0 ? listen_as_leader(name) : base::Fd();
  const std::vector<std::string> names = site.all_gather(name);
  PLAIT_CHECK(static_cast<int>(names.size()) == seat.world, "the caller's all_gather returned ",
              names.size(), " parts in a world of ", seat.world);
  const bool plausible = seat.rank == 0 ? names[0] == name : is_secret_name(names[0]);
  PLAIT_CHECK(plausible, "the caller's all_gather returned \"", names[0].substr(0, 40),
              names[0].size() > 40 ? "..." : "", "\" for rank 0, which it cannot have sent");
  std::vector<base::Fd> sockets;
  if (seat.rank == 0) {
    sockets = assemble(std::move(listener), seat);
  } else {
    sockets.push_back(attend(names[0], seat));
  }
  return make_mapped_transport(std::make_unique<Hub>(seat, std::move(sockets)), site.policy);
}

}  // namespace plait::comm::shm
