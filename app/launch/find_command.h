// Finds the file of a command before anything is started.
#pragma once

#include <string>

namespace plait::launch {

// The exit statuses that a shell would return.
inline constexpr int kCannotRun = 126;
inline constexpr int kNotFound = 127;

struct Command {
  std::string path;
  int status = 0;       // 0, kCannotRun or kNotFound
  std::string refusal;  // the reason
};

Command find_command(const std::string& name);

}  // namespace plait::launch
