// Texts about ranks, signals and exits.
#pragma once

#include <string>
#include <vector>

namespace plait::cli {

std::string show_signal(int signal);    // "SIGTERM"
std::string show_end(int wait_status);  // "exited with status 3", "was killed by SIGKILL"
int exit_status_of(int wait_status);    // 3, or 128 + the signal, as in a shell
std::string show_ranks(const std::vector<int>& ranks);  // "rank 1", "ranks 0, 1 and 3", "57 ranks"
std::string show_count(std::size_t count, const std::string& noun);  // "1 process", "2 processes"

}  // namespace plait::cli
