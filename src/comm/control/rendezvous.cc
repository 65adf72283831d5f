#include "comm/control/rendezvous.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/env.h"
#include "base/text.h"

namespace plait::comm::tcp {
namespace {

// The host of each rank by PLAIT_PLACEMENT, such as node1:2,node2:2; empty: it isn't set, or not of
// this world.
std::vector<std::string> hosts_of_ranks(int world) {
  std::vector<std::string> hosts;
  const std::string placement = base::env("PLAIT_PLACEMENT").value_or("");
  for (const std::string_view part : base::split(placement, ',')) {
    const std::size_t colon = part.rfind(':');
    const auto ranks = colon == part.npos ? std::nullopt : base::parse_int(part.substr(colon + 1));
    const auto left = static_cast<std::int64_t>(world) - static_cast<std::int64_t>(hosts.size());
    if (!ranks || *ranks < 1 || *ranks > left) return {};
    hosts.insert(hosts.end(), static_cast<std::size_t>(*ranks), std::string(part.substr(0, colon)));
  }
  return static_cast<int>(hosts.size()) == world ? hosts : std::vector<std::string>{};
}

}  // namespace

std::string secret_from_environment() {
  constexpr std::size_t kLeast = 16;
  auto secret = base::env(kSecretVariable);
  if (!secret) return {};
  PLAIT_CHECK(secret->size() >= kLeast, kSecretVariable, " has ", secret->size(),
              " characters; it needs ", kLeast,
              " or more, so that it can't be guessed: openssl rand -hex 16 makes a good one");
  return std::move(*secret);
}

std::optional<Rendezvous> rendezvous_from_environment() {
  if (const auto text = base::env("PLAIT_RENDEZVOUS")) {
    // A URL is not HOST:PORT.
    const auto colon = text->find('/') == std::string::npos ? text->rfind(':') : std::string::npos;
    const std::int64_t port =
        colon == std::string::npos ? 0 : base::parse_int(text->substr(colon + 1)).value_or(0);
    std::string host = text->substr(0, colon);
    const bool has_brackets = host.starts_with('[') && host.ends_with(']');
    PLAIT_CHECK(port > 0 && port < 65536 && colon > 0 &&
                    (has_brackets || host.find(':') == std::string::npos),
                "PLAIT_RENDEZVOUS=", *text,
                " is not like HOST:PORT, as in node1:29600 or [fd00::1]:29600");
    if (has_brackets) host = host.substr(1, host.size() - 2);
    return Rendezvous{std::move(host), static_cast<int>(port)};
  }
  const auto host = base::env("MASTER_ADDR");
  const auto port = base::env_int("MASTER_PORT", 1, 65534);
  if (!host || !port) return std::nullopt;
  // The framework's own store listens at MASTER_PORT.
  return Rendezvous{*host, static_cast<int>(*port) + 1};
}

std::string show_hosts_of(const std::vector<int>& ranks, int world) {
  constexpr std::size_t kMost = 4;
  const std::vector<std::string> hosts = hosts_of_ranks(world);
  if (hosts.empty()) return "";
  std::vector<std::string> names;
  for (const int rank : ranks) {
    if (std::find(names.begin(), names.end(), hosts[rank]) == names.end())
      names.push_back(hosts[rank]);
  }
  std::string list;
  for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i)
    list += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kMost) list += base::sentence(" and ", names.size() - kMost, " more");
  return (names.size() > 1 ? " (hosts " : " (host ") + list + ')';
}

}  // namespace plait::comm::tcp
