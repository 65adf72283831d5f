#include "launch/format.h"

#include <sys/wait.h>

#include <csignal>
#include <cstring>

#include "base/text.h"

namespace plait::launch {

std::string show_signal(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? "signal " + std::to_string(signal) : std::string("SIG") + name;
}

std::string show_end(int wait_status) {
  if (!WIFSIGNALED(wait_status))
    return "exited with status " + std::to_string(WEXITSTATUS(wait_status));
  const int signal = WTERMSIG(wait_status);
  std::string text = "was killed by " + show_signal(signal);
  if (signal == SIGKILL) text += " (sent by a process, or because memory ran out)";
  if (WCOREDUMP(wait_status)) text += " (core dumped)";
  return text;
}

int exit_status_of(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::string show_ranks(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return "rank " + std::to_string(ranks[0]);
  if (ranks.size() > 8) return std::to_string(ranks.size()) + " ranks";
  return "ranks " + base::show_list(ranks);
}

}  // namespace plait::launch
