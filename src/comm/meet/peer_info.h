// Answers from ranks' descriptions of themselves: whether these ranks fit together, and where each
// of them is.
#pragma once

#include <optional>
#include <vector>

#include "comm/control/address.h"
#include "comm/core/transport.h"
#include "comm/meet/handshake.h"
#include "comm/meet/timeout_hints.h"
#include "plait/error.h"

namespace plait::comm::tcp {

// This rank in a meeting, and its description of itself if it listens at this port.
Identity identity_of(const Site& site);
PeerInfo info_of(const Site& site, int port);

// True if both are known to be on the same host. Hosts that can't be told apart are different ones.
bool is_same_host(const PeerInfo& one, const PeerInfo& other);

bool is_same_process(const PeerInfo& one, const PeerInfo& other);

// Says that a rank runs another build than this one, or uses another transport; null: neither.
std::optional<Error> find_difference(int rank, const PeerInfo& info, int me, const PeerInfo& mine);

// Says that two ranks on different hosts can't connect, because one has only addresses of IPv4 and
// the other only of IPv6. An interface that the user has chosen for one of them leaves it only that
// one's addresses. `infos` are of all ranks, in their order.
std::optional<Error> find_families_apart(const std::vector<PeerInfo>& infos);

// The addresses at which a described rank listens. Loopback leads to this host only, and comes
// last. If hosts can't be told apart it is tried: a wrong rank there says that it is another one.
std::vector<Address> addresses_of(const PeerInfo& info, const PeerInfo& mine);

// True if the host of one of these ranks has fewer processors than there are ranks on it.
bool is_oversubscribed(const std::vector<PeerInfo>& infos, int me);

}  // namespace plait::comm::tcp
