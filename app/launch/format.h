// Texts and statuses of ranks, signals and exits.
#pragma once

#include <string>
#include <vector>

namespace plait::launch {

std::string show_signal(int signal);    // "SIGTERM"
std::string show_end(int wait_status);  // "exited with status 3", "was killed by SIGKILL"
int exit_status_of(int wait_status);    // 3, or 128 + the signal, as in a shell

// The exit status of a process of plait that has lost another rank.
inline constexpr int kPeerLost = 3;

std::string show_ranks(const std::vector<int>& ranks);  // "rank 1", "ranks 0, 1 and 3", "57 ranks"

}  // namespace plait::launch
