#include "ranks.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <vector>

#include "base/check.h"
#include "base/cpus.h"

namespace plait::bench {
namespace {

// Memory that this process shares with children that are forked later.
class Common {
 public:
  Common()
      : data_(::mmap(nullptr, BenchRank::kCommonBytes, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (data_ == MAP_FAILED) base::fail(Code::system, "cannot map memory for the ranks to share");
  }
  Common(const Common&) = delete;
  Common& operator=(const Common&) = delete;
  ~Common() { ::munmap(data_, BenchRank::kCommonBytes); }

  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_;
};

// Pins the calling thread, and restores its affinity at the end.
class Pinned {
 public:
  explicit Pinned(int rank) : before_(base::allowed_cpus()) { pin(rank); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned() { ::sched_setaffinity(0, sizeof(before_), &before_); }

 private:
  cpu_set_t before_;
};

// The processes of ranks 1, 2, ...; those that still run at the end are killed.
class Children {
 public:
  Children() = default;
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children() {
    for (const pid_t pid : pids_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }

  void add(pid_t pid) { pids_.push_back(pid); }

  // Waits for all processes. Returns the first rank that failed, or 0.
  int join() {
    int failed = 0;
    for (std::size_t i = 0; i < pids_.size(); ++i) {
      int status = 0;
      ::waitpid(pids_[i], &status, 0);
      if (status != 0 && failed == 0) failed = static_cast<int>(i) + 1;
    }
    pids_.clear();
    return failed;
  }

 private:
  std::vector<pid_t> pids_;
};

std::string fresh_job() {
  static std::atomic<int> count{0};
  return "bench-" + std::to_string(::getpid()) + "-" + std::to_string(count.fetch_add(1));
}

void be_rank(const RankGroup& group, const Place& place, const Common& common,
             const std::function<void(BenchRank&)>& body) {
  const Pinned pinned(place.rank);
  Communicator comm =
      Communicator::connect({.transport = group.transport, .place = place, .link = group.link});
  BenchRank self = {.comm = comm, .common = common.data()};
  body(self);
}

[[noreturn]] void be_child(const RankGroup& group, const Place& place, const Common& common,
                           const std::function<void(BenchRank&)>& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  int status = 0;
  try {
    be_rank(group, place, common, body);
  } catch (const Error& error) {
    status = 1;
    // Errors that another rank caused are reported by that rank.
    if (error.culprit() == Error::kNoRank || error.culprit() == place.rank)
      std::cerr << "rank " << place.rank << ": " << error.what() << std::endl;
  } catch (const std::exception& error) {
    status = 1;
    std::cerr << "rank " << place.rank << ": " << error.what() << std::endl;
  }
  ::_exit(status);  // skips destructors, which belong to the parent
}

void run_processes(const RankGroup& group, const Common& common,
                   const std::function<void(BenchRank&)>& body) {
  std::cout.flush();
  Place place = {.rank = 0, .world = group.ranks, .job = fresh_job()};
  Children children;
  for (int rank = 1; rank < group.ranks; ++rank) {
    place.rank = rank;
    const pid_t pid = ::fork();
    if (pid < 0) base::fail(Code::system, "rank ", rank, " cannot be forked");
    if (pid == 0) be_child(group, place, common, body);
    children.add(pid);
  }
  place.rank = 0;
  be_rank(group, place, common, body);
  if (const int failed = children.join(); failed != 0)
    throw Error(Code::peer_lost, base::sentence("rank ", failed, " failed"), failed);
}

}  // namespace

void pin(int rank) {
  const cpu_set_t allowed = base::allowed_cpus();
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  }
  cpu_set_t mine;
  CPU_ZERO(&mine);
  CPU_SET(cpus[rank % cpus.size()], &mine);
  ::sched_setaffinity(0, sizeof(mine), &mine);
}

void run_ranks(const RankGroup& group, const std::function<void(BenchRank&)>& body) {
  const Common common;
  if (group.transport != "threads") {
    run_processes(group, common, body);
    return;
  }
  run_in_threads(group.ranks,
                 [&](Communicator& comm) {
                   pin(comm.rank());
                   BenchRank self = {.comm = comm, .common = common.data()};
                   body(self);
                 },
                 {.link = group.link});
}

}  // namespace plait::bench
