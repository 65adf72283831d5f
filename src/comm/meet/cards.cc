#include "comm/meet/cards.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/cpus.h"
#include "base/text.h"
#include "comm/control/address.h"
#include "comm/meet/transport_check.h"

namespace plait::comm::tcp {

using base::sentence;

namespace {

// The families of the addresses by which other hosts can reach a rank.
struct Families {
  bool has_four = false;
  bool has_six = false;
};

Families families_of(const Card& card) {
  Families families;
  for (const std::string_view host : base::split(card.hosts, ',')) {
    for (const Address& one : read_addresses(std::string(host), 0)) {
      if (one.is_loopback()) continue;
      (one.family() == AF_INET ? families.has_four : families.has_six) = true;
    }
  }
  return families;
}

std::string chosen_by(const Card& card) {
  return card.has_interface() ? " (PLAIT_INTERFACE=" + card.interface + ')' : "";
}

}  // namespace

bool is_same_host(const Card& one, const Card& other) {
  return one.host == other.host && one.host != kUnknown;
}

bool is_same_process(const Card& one, const Card& other) {
  return one.host == other.host && one.name == other.name && one.pid == other.pid;
}

std::optional<Error> find_difference(int rank, const Card& card, int me, const Card& mine) {
  if (card.build != mine.build) {
    return Error(Code::mismatch,
                 sentence("rank ", rank, " runs plait ", card.build, ", rank ", me, " plait ",
                          mine.build, ": all ranks must run the same build"),
                 rank);
  }
  if (card.transport == mine.transport) return std::nullopt;
  return transports_differ(rank, card.transport, me, mine.transport);
}

std::optional<Error> find_families_apart(const std::vector<Card>& cards) {
  const auto has_interface = [](const Card& card) { return card.has_interface(); };
  if (std::none_of(cards.begin(), cards.end(), has_interface)) return std::nullopt;
  std::vector<int> with_four;
  std::vector<int> with_six;
  for (int rank = 0; rank < static_cast<int>(cards.size()); ++rank) {
    const Families families = families_of(cards[rank]);
    if (families.has_four != families.has_six)
      (families.has_four ? with_four : with_six).push_back(rank);
  }
  for (const int four : with_four) {
    for (const int six : with_six) {
      const Card& one = cards[four];
      const Card& other = cards[six];
      if ((!one.has_interface() && !other.has_interface()) || is_same_host(one, other)) continue;
      return Error(Code::mismatch,
                   sentence("rank ", four, " has only IPv4 addresses", chosen_by(one), ", rank ",
                            six, " only IPv6", chosen_by(other),
                            ": ranks connect by addresses of the same family"),
                   std::max(four, six));
    }
  }
  return std::nullopt;
}

std::vector<Address> addresses_of(const Card& card, const Card& mine) {
  std::vector<Address> all;
  const auto port = static_cast<int>(base::parse_int(card.port).value_or(0));
  for (const std::string_view host : base::split(card.hosts, ',')) {
    for (const Address& one : read_addresses(std::string(host), port)) {
      if (!one.is_loopback() || card.host == mine.host) all.push_back(one);
    }
  }
  return all;
}

bool is_oversubscribed(const std::vector<Card>& cards, int me) {
  cpu_set_t cpus = base::allowed_cpus();
  int near = 1;
  for (int rank = 0; rank < static_cast<int>(cards.size()); ++rank) {
    if (rank == me || !is_same_host(cards[rank], cards[me])) continue;
    const cpu_set_t theirs = cpus_of(cards[rank]);
    CPU_OR(&cpus, &cpus, &theirs);
    ++near;
  }
  return CPU_COUNT(&cpus) < near;
}

}  // namespace plait::comm::tcp
