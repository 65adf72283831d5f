#include "cli/console.h"

#include <fmt/core.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>

#include "base/check.h"
#include "launch/output_stream.h"

namespace plait::cli {
namespace {

constexpr base::Nanoseconds kPatience = 2 * base::kSecond;

}  // namespace

void answer(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    base::fail_errno("cannot write to standard output");
}

void complain(std::string_view speaker, std::string_view sentence) noexcept try {
  std::signal(SIGPIPE, SIG_IGN);  // so that the exit status tells the error, not a broken pipe
  launch::OutputStream sink(STDERR_FILENO);
  sink.queue() = fmt::format("{}: {}\n", speaker, sentence);
  sink.write_within(kPatience);
} catch (const std::exception&) {
  return;  // there is no memory for the message
}

}  // namespace plait::cli
