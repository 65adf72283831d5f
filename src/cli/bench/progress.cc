#include "cli/bench/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace plait::cli {
namespace {

constexpr base::Nanoseconds kPatience = 2 * base::kSecond;
constexpr base::Nanoseconds kInterval = 200 * base::kMillisecond;

}  // namespace

Progress::Progress(std::string what)
    : what_(std::move(what)),
      terminal_(isatty(STDERR_FILENO) == 1),
      next_(base::now() + kPatience) {}

Progress::~Progress() {
  if (!shown_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

void Progress::show(std::int64_t done, std::int64_t total) {
  if (!terminal_ || base::now() < next_) return;
  next_ = base::now() + kInterval;
  shown_ = true;
  // Not fmt::print(), which throws where the terminal has gone.
  std::fputs(fmt::format("\r\x1b[K{}: {} of {}", what_, done, total).c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace plait::cli
