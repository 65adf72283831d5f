#include "cli/bench/oversubscription.h"

#include <fmt/format.h>

#include "base/parallel.h"
#include "base/text.h"
#include "comm/session/transports.h"
#include "launch/topology.h"

namespace plait::cli {

std::string show_oversubscription(int ranks, int threads, std::string_view transport) {
  if (comm::crosses_hosts(transport)) return "";
  const int each = base::thread_count(threads);
  const int cores = launch::read_topology().host_cores;
  if (ranks == 1 || cores < 1 || ranks * each <= cores) return "";
  return fmt::format(
      "\n{} of {} share {}: the ranks are oversubscribed, and overlap figures are not\n"
      "meaningful.",
      base::show_count(static_cast<std::size_t>(ranks), "rank"),
      base::show_count(static_cast<std::size_t>(each), "thread"),
      base::show_count(static_cast<std::size_t>(cores), "core"));
}

}  // namespace plait::cli
