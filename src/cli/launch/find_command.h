// Where a command is, found before anything is started.
#pragma once

#include <string>

namespace plait::cli {

// What a shell would answer.
inline constexpr int kCannotRun = 126;
inline constexpr int kNotFound = 127;

struct Command {
  std::string path;
  int status = 0;       // kCannotRun or kNotFound otherwise
  std::string refusal;  // and why
};

Command find_command(const std::string& name);

}  // namespace plait::cli
