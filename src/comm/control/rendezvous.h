// The settings of the environment for the meeting of ranks over TCP: the address and the secret.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace plait::comm::tcp {

// The place at which ranks meet without the help of a framework; null: no variable names it.
struct Rendezvous {
  std::string host;
  int port;
};
std::optional<Rendezvous> rendezvous_from_environment();

// " (host a)" or " (hosts a, b)": where plait run --hosts has placed these ranks. Empty: no
// variable says. `world`: the number of all ranks.
std::string show_hosts_of(const std::vector<int>& ranks, int world);

inline constexpr const char* kSecretVariable = "PLAIT_SECRET";

// Its value; empty: there is none. Refuses one that is short enough to be guessed.
std::string secret_from_environment();

}  // namespace plait::comm::tcp
