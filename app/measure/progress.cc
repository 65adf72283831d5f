#include "measure/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace plait::measure {
namespace {

constexpr base::Nanoseconds kPatience = 2 * base::kSecond;
constexpr base::Nanoseconds kInterval = 200 * base::kMillisecond;

}  // namespace

Progress::Progress(std::string what)
    : what_(std::move(what)),
      terminal_(!what_.empty() && isatty(STDERR_FILENO) == 1),
      begin_(base::now()),
      next_(begin_ + kPatience) {}

Progress::~Progress() {
  if (!shown_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

void Progress::show(std::int64_t done, std::int64_t total) {
  if (!terminal_ || base::now() < next_) return;
  next_ = base::now() + kInterval;
  shown_ = true;
  // Assumes that each of the rest takes as long as each so far.
  const double each = static_cast<double>(base::now() - begin_) / static_cast<double>(done);
  const double left = each * static_cast<double>(total - done) * 1e-9;
  // fmt::print() would throw if the terminal is gone.
  std::fputs(fmt::format("\r\x1b[K{}: {} of {}{}", what_, done, total,
                         done > 0 ? fmt::format(", {:.0f} s left", left) : "")
                 .c_str(),
             stderr);
  std::fflush(stderr);
}

}  // namespace plait::measure
