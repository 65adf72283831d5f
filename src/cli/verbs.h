// What plait can be told to do: one function and one file per verb. Each takes the words after its
// name and answers with the exit status; what goes wrong it throws as an Error, and main() says it.
#pragma once

#include <span>
#include <string>

#include "plait/error.h"

namespace plait::cli {

using Words = std::span<const std::string>;

// The exit statuses of every verb but run, which answers with its ranks' status.
inline constexpr int kDone = 0;
inline constexpr int kCheckFailed = 1;
inline constexpr int kWrongUsage = 2;
inline constexpr int kPeerLost = 3;

// Of a verb that threw.
constexpr int exit_status(Code code) {
  if (code == Code::invalid_argument) return kWrongUsage;
  return code == Code::peer_lost ? kPeerLost : kCheckFailed;
}

int bench(Words words);
int info(Words words);
int predict(Words words);
int run(Words words);
int trace(Words words);
int tune(Words words);
int verify(Words words);

}  // namespace plait::cli
