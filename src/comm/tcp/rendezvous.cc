#include "comm/tcp/rendezvous.h"

#include <utility>

#include "base/check.h"
#include "base/env.h"
#include "base/text.h"

namespace plait::comm::tcp {

std::string secret_from_environment() {
  constexpr std::size_t kLeast = 16;
  auto secret = base::env(kSecretVariable);
  if (!secret) return {};
  PLAIT_CHECK(secret->size() >= kLeast, kSecretVariable, " has ", secret->size(),
              " characters, which can be guessed; ", kLeast,
              " are the least: openssl rand -hex 16 makes some");
  return std::move(*secret);
}

std::optional<Rendezvous> rendezvous_from_environment() {
  if (const auto text = base::env("PLAIT_RENDEZVOUS")) {
    const auto colon = text->rfind(':');
    const auto port =
        colon == std::string::npos ? std::nullopt : base::parse_int(text->substr(colon + 1));
    PLAIT_CHECK(port && *port > 0 && *port < 65536 && colon > 0, "PLAIT_RENDEZVOUS=", *text,
                " is not like HOST:PORT, as in node1:29600");
    std::string host = text->substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    return Rendezvous{std::move(host), static_cast<int>(*port)};
  }
  const auto host = base::env("MASTER_ADDR");
  const auto port = base::env_int("MASTER_PORT", 1, 65534);
  if (!host || !port) return std::nullopt;
  // The framework's own store listens at MASTER_PORT.
  return Rendezvous{*host, static_cast<int>(*port) + 1};
}

}  // namespace plait::comm::tcp
