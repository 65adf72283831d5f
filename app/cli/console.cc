#include "cli/console.h"

#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>

#include "base/check.h"
#include "launch/output_stream.h"

namespace plait::cli {
namespace {

constexpr base::Nanoseconds kPatience = 2 * base::kSecond;

std::atomic<bool> lost_reader = false;  // ranks may be threads

}  // namespace

void answer(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0)
    return;
  lost_reader = errno == EPIPE;
  base::fail_errno("cannot write to standard output");
}

bool has_lost_reader() { return lost_reader; }

void complain(std::string_view speaker, std::string_view sentence) noexcept try {
  std::signal(SIGPIPE, SIG_IGN);  // so that the exit status tells the error, not a broken pipe
  launch::OutputStream sink(STDERR_FILENO);
  sink.queue() = fmt::format("{}: {}\n", speaker, sentence);
  sink.write_within(kPatience);
} catch (const std::exception&) {
  return;  // there is no memory for the message
}

}  // namespace plait::cli
