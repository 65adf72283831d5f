#include <memory>

#include "comm/core/build_name.h"
#include "comm/core/plugin.h"
#include "comm/engines/tcp/tcp_transport.h"
#include "comm/engines/ucx/plugin/ucx_carrier.h"

namespace plait::comm::ucx {
namespace {

std::unique_ptr<tcp::Carrier> make_carrier(tcp::TcpGroup& all) {
  auto carrier = std::make_unique<UcxCarrier>(all.rank(), all.world());
  const auto addresses = all.all_gather(carrier->address());
  for (int peer = 0; peer < all.world(); ++peer) {
    if (peer != all.rank()) carrier->connect(peer, addresses[peer]);
  }
  return carrier;
}

std::unique_ptr<Transport> create(const Site& site) { return tcp::create(site, make_carrier); }

}  // namespace
}  // namespace plait::comm::ucx

extern "C" PLAIT_EXPORT const plait::comm::PluginHead* plait_ucx_plugin() {
  static const plait::comm::Plugin plugin = {
      // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): it ends with a zero
      {.build = plait::comm::build_name().data()},
      plait::comm::ucx::create};
  return &plugin;
}
