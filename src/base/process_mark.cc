#include "base/process_mark.h"

#include <unistd.h>

#include <cstddef>

#include "base/check.h"
#include "base/host.h"
#include "base/process.h"
#include "base/text.h"

namespace plait::base {
namespace {

// The host and the namespaces that give this process its pid and its start time.
std::string place_of_pids() {
  return sentence(boot_id(), ' ', namespace_id("pid"), ' ', namespace_id("time"));
}

}  // namespace

bool ProcessMark::has_ended() const { return is_visible && base::has_ended(Fd(), pid, start); }

std::string mark_of_this_process() {
  return sentence(::getpid(), ' ', start_of(::getpid()), ' ', place_of_pids());
}

ProcessMark read_process_mark(std::string_view words) {
  const auto parts = split(words, ' ');
  const auto number = [&](std::size_t part) {
    return parts.size() > part ? parse_int(parts[part]).value_or(0) : 0;
  };
  return {.pid = static_cast<pid_t>(number(0)),
          .start = static_cast<std::uint64_t>(number(1)),
          .is_visible = number(1) != 0 && words.ends_with(' ' + place_of_pids())};
}

}  // namespace plait::base
