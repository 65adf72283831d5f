#include "comm/engines/mpi/plugin/local_processes.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "base/cpus.h"
#include "base/host.h"
#include "base/process.h"
#include "comm/core/build_name.h"

namespace plait::comm::mpi {
namespace {

struct ProcessRecord {
  std::array<char, kLongestBuildName + 1> build;  // first, so that every other build can read it
  pid_t pid;
  std::uint64_t start;
  std::array<char, 100> realm;
  cpu_set_t cpus;
};

// Two processes can name each other by pid where both the host and the namespace of pids are the
// same. Empty where it can't be told.
std::string realm_of_pids() {
  const std::string boot = base::host_id();
  const std::string space = base::namespace_id("pid");
  return boot.empty() || space.empty() ? "" : boot + ' ' + space;
}

// The build that the process runs, as far as its record can be read.
std::string build_in(const std::string& bytes) {
  const std::string build = bytes.substr(0, std::min(bytes.find('\0'), kLongestBuildName));
  const bool is_a_word =
      std::all_of(build.begin(), build.end(), [](unsigned char c) { return c > ' ' && c < 0x7f; });
  return build.empty() || !is_a_word ? "of another build" : build;
}

// All processes read the same records and throw the same error.
void check_builds(const std::vector<std::string>& records) {
  for (std::size_t process = 1; process < records.size(); ++process) {
    const std::string first = build_in(records[0]);
    const std::string one = build_in(records[process]);
    if (one == first && records[process].size() == sizeof(ProcessRecord)) continue;
    throw Error(Code::mismatch,
                base::sentence("rank ", process, " runs plait ", one, ", rank 0 plait ", first,
                               ": all ranks must run the same build"),
                static_cast<int>(process));
  }
}

ProcessRecord parse(const std::string& bytes) {
  ProcessRecord record = {};
  PLAIT_CHECK(bytes.size() == sizeof(record), "a process introduces itself by ", bytes.size(),
              " bytes instead of ", sizeof(record));
  std::memcpy(&record, bytes.data(), sizeof(record));
  record.realm.back() = '\0';
  return record;
}

}  // namespace

std::string LocalProcesses::record() {
  ProcessRecord record = {.build = {},
                          .pid = ::getpid(),
                          .start = base::start_of(::getpid()),
                          .realm = {},
                          .cpus = base::allowed_cpus()};
  build_name().copy(record.build.data(), kLongestBuildName);
  const std::string realm = realm_of_pids();
  if (realm.size() < record.realm.size())
    std::memcpy(record.realm.data(), realm.data(), realm.size());
  return {reinterpret_cast<const char*>(&record), sizeof(record)};
}

LocalProcesses::LocalProcesses(const std::vector<std::string>& records) {
  check_builds(records);
  const ProcessRecord mine = parse(record());
  const std::string realm = mine.realm.data();
  cpu_set_t cpus = mine.cpus;
  int local = 0;
  for (const std::string& bytes : records) {
    const ProcessRecord record = parse(bytes);
    Process& one = all_.emplace_back(Process{.pid = record.pid, .start = record.start});
    if (realm.empty() || realm != record.realm.data()) continue;
    // Invalid on kernels before 5.3, and then the pid must do.
    one.pidfd = base::Fd(static_cast<int>(::syscall(SYS_pidfd_open, record.pid, 0)));
    // A host that was cloned from the same snapshot has the same id. The process is on that other
    // host, and alive, where this one has no such process or another one under its pid.
    one.is_local = !base::has_ended(one.pidfd, one.pid, one.start);
    if (!one.is_local) continue;
    CPU_OR(&cpus, &cpus, &record.cpus);
    ++local;
  }
  oversubscribed_ = CPU_COUNT(&cpus) < local;
}

bool LocalProcesses::has_ended(int process) const {
  const Process& one = all_[process];
  return one.is_local && base::has_ended(one.pidfd, one.pid, one.start);
}

bool LocalProcesses::any_has_ended() const {
  for (int process = 0; process < static_cast<int>(all_.size()); ++process) {
    if (has_ended(process)) return true;
  }
  return false;
}

std::string LocalProcesses::describe(int process) const {
  return base::sentence("pid ", all_[process].pid);
}

}  // namespace plait::comm::mpi
