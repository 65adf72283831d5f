// The processes of a job on several hosts that share memory with this one, because they are on its
// host and each can map the other's memory.
//
// Processes are near each other if their homes are the same (home.h), and all of this home have
// mapped a page of one another. If one of them could not, none of them are. If all of a job are on
// one host, none are: TCP was asked for by name then.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/function_ref.h"
#include "base/region.h"
#include "comm/mapped/sleep_sign.h"

namespace plait::comm::tcp {

// Memory of this process that others may map for as long as this object lives. What is mapped by
// then, and memory(), stay.
class SharedRegion {
 public:
  SharedRegion() = default;  // none
  explicit SharedRegion(std::size_t bytes);
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;
  ~SharedRegion();

  const base::Region& memory() const { return memory_; }
  std::string offer() const;  // for HostPeers::map(): a word, "-" where there is none

 private:
  base::Fd file_;
  base::FileAddress address_ = {};
  base::Region memory_;
};

class HostPeers {
 public:
  // Each process gives its text and gets those of all, in the order of their numbers.
  using AllGather = base::FunctionRef<std::vector<std::string>(const std::string& mine)>;

  // Until meet(), no process is near another.
  HostPeers(int me, int processes);

  // Collective over all processes. `host`: the name of a simulated host; empty: the machine's own.
  void meet(const std::string& host, AllGather all_gather);

  bool has(int process) const { return homes_[process] == homes_[me_]; }  // this one, too

  // Why a process of this kernel is not near; empty: it is, or it runs on another kernel.
  std::string why_far(int process) const;

  // True if any two of these are near each other: the same answer in all processes.
  bool has_two_of(const std::vector<int>& processes) const;

  // The memory that a near process lends. Throws Error{system} where it can't be mapped.
  base::Region map(int process, const std::string& offer, std::size_t bytes) const;

  // Right after a store that a near process is to see: whether this one must wake it.
  bool must_wake(int process) { return sign_of(process).must_wake(); }

  bool is_alone() const { return pages_.empty(); }
  SleepSign& my_sign() { return sign_of(me_); }

 private:
  bool map_pages(const std::vector<std::string>& offers);
  SleepSign& sign_of(int process) {
    return *reinterpret_cast<SleepSign*>(pages_[process].data());  // zeros: no thread sleeps
  }

  int me_;
  std::vector<int> homes_;               // by process: the lowest that is near it
  std::vector<std::string> told_homes_;  // by process; empty: unknown
  std::vector<pid_t> pids_;
  std::vector<base::Region>
      pages_;  // by process: empty where it is not near; none at all: is_alone
};

}  // namespace plait::comm::tcp
