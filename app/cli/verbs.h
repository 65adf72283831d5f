// The verbs of plait: one function and one file each. A verb takes the words after its name and
// returns the exit status. It throws an Error, which main() prints.
#pragma once

#include <csignal>
#include <span>
#include <string>
#include <string_view>

#include "launch/format.h"
#include "plait/error.h"

namespace plait::cli {

using Words = std::span<const std::string>;

// In place of --help, makes a verb throw its HelpPage.
inline constexpr std::string_view kDescribe = "--describe";

// True if the first word asks for a help page.
inline bool asks_for_help(Words words) {
  return !words.empty() && (words[0] == "-h" || words[0] == "--help" || words[0] == kDescribe);
}

struct Verb {
  const char* name;
  const char* summary;
  int (*run)(Words);
};

// The exit statuses of all verbs except run, which returns the status of its ranks.
inline constexpr int kDone = 0;
inline constexpr int kCheckFailed = 1;
inline constexpr int kWrongUsage = 2;
using launch::kPeerLost;
inline constexpr int kReaderGone = 128 + SIGPIPE;  // of standard output

// The exit status of a verb that threw.
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

// plait run for another verb. `speaker`, such as "plait tune", begins its messages.
int run_for(const std::string& speaker, Words words);

}  // namespace plait::cli
