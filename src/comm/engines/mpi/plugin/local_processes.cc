#include "comm/engines/mpi/plugin/local_processes.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "base/host.h"
#include "base/process.h"
#include "base/text.h"

namespace plait::comm::mpi {
namespace {

// Two processes can name each other by pid where both the host and the namespace of pids are the
// same. Empty where it can't be told.
std::string realm_of_pids() {
  const std::string boot = base::host_id();
  const std::string space = base::namespace_id("pid");
  return boot.empty() || space.empty() ? "" : boot + ' ' + space;
}

}  // namespace

std::string LocalProcesses::record() {
  return base::sentence(::getpid(), ' ', base::start_of(::getpid()), ' ', realm_of_pids());
}

LocalProcesses::LocalProcesses(const std::vector<std::string>& records) {
  const std::string realm = realm_of_pids();
  for (const std::string& record : records) {
    const auto words = base::split(record, ' ');
    Process& one = all_.emplace_back();
    const std::size_t ids = words.size() < 3 ? 0 : words[0].size() + words[1].size() + 2;
    if (realm.empty() || ids == 0 || record.substr(ids) != realm) continue;
    one.pid = static_cast<pid_t>(base::parse_int(words[0]).value_or(0));
    one.start = static_cast<std::uint64_t>(base::parse_int(words[1]).value_or(0));
    // Invalid on kernels before 5.3, and then the pid must do.
    one.pidfd = base::Fd(static_cast<int>(::syscall(SYS_pidfd_open, one.pid, 0)));
    one.memory_size = base::open_memory_size(one.pid);
    // A host that was cloned from the same snapshot has the same id. The process is on that other
    // host, and alive, where this one has no such process or another one under its pid.
    one.is_local = !base::has_ended(one.pidfd, one.pid, one.start);
  }
}

bool LocalProcesses::Process::has_ended() const {
  return is_local && base::has_ended(pidfd, pid, start);
}

bool LocalProcesses::Process::may_be_ending() const {
  return is_local && (memory_size ? base::may_be_ending(memory_size) : has_ended());
}

bool LocalProcesses::any_has_ended() const {
  return std::any_of(all_.begin(), all_.end(), [](const Process& one) { return one.has_ended(); });
}

}  // namespace plait::comm::mpi
