// Questions that cards of ranks answer: whether these ranks fit together, and where each of them
// is.
#pragma once

#include <optional>
#include <vector>

#include "comm/control/address.h"
#include "comm/meet/handshake.h"
#include "plait/error.h"

namespace plait::comm::tcp {

// True if both are known to be on the same host. Hosts that can't be told apart are different ones.
bool is_same_host(const Card& one, const Card& other);

bool is_same_process(const Card& one, const Card& other);

// Says that a rank runs another build than this one, or uses another transport; null: neither.
std::optional<Error> find_difference(int rank, const Card& card, int me, const Card& mine);

// Says that two ranks on different hosts can't connect, because one has only addresses of IPv4 and
// the other only of IPv6. An interface that the user has chosen for one of them leaves it only that
// one's addresses. `cards` of all ranks, in their order.
std::optional<Error> find_families_apart(const std::vector<Card>& cards);

// The addresses at which the rank of a card listens. Loopback leads to this host only, and comes
// last. If hosts can't be told apart it is tried: a wrong rank there says that it is another one.
std::vector<Address> addresses_of(const Card& card, const Card& mine);

// True if the host of one of these ranks has fewer processors than there are ranks on it.
bool is_oversubscribed(const std::vector<Card>& cards, int me);

}  // namespace plait::comm::tcp
