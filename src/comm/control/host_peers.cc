#include "comm/control/host_peers.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/futex.h"
#include "base/text.h"
#include "comm/control/sharing_domain.h"

namespace plait::comm::tcp {

using base::sentence;

namespace {

// The memory that this process lends, by the file's number. Ranks that are threads of one process
// share one mapping, which is also what lets the thread sanitizer see that they do.
class OwnMemory {
 public:
  static OwnMemory& here() {
    static OwnMemory memory;
    return memory;
  }

  void add(ino_t inode, const base::Region& memory) {
    const std::lock_guard lock(mutex_);
    lent_[inode] = memory;
  }
  void remove(ino_t inode) {
    const std::lock_guard lock(mutex_);
    lent_.erase(inode);
  }
  base::Region find(ino_t inode) {
    const std::lock_guard lock(mutex_);
    const auto found = lent_.find(inode);
    return found == lent_.end() ? base::Region() : found->second;
  }

 private:
  std::mutex mutex_;
  std::map<ino_t, base::Region> lent_;
};

std::optional<base::FileAddress> read_offer(pid_t pid, const std::string& offer) {
  const auto words = base::split(offer, ':');
  if (words.size() != 3) return std::nullopt;
  const auto fd = base::parse_int(words[0]);
  const auto device = base::parse_int(words[1]);
  const auto inode = base::parse_int(words[2]);
  if (!fd || !device || !inode) return std::nullopt;
  return base::FileAddress{.pid = pid,
                           .fd = static_cast<int>(*fd),
                           .device = static_cast<dev_t>(*device),
                           .inode = static_cast<ino_t>(*inode)};
}

struct HostEntry {
  std::string home;  // empty: unknown
  pid_t pid;
  std::string offer;  // of its page
};

constexpr const char* kUnknownHost = "?";

std::string write(const HostEntry& entry) {
  return sentence(entry.home.empty() ? kUnknownHost : entry.home, ' ', entry.pid, ' ', entry.offer);
}

std::optional<HostEntry> read(const std::string& text) {
  const auto words = base::split(text, ' ');
  const auto pid = words.size() == 3 ? base::parse_int(words[1]) : std::nullopt;
  if (!pid) return std::nullopt;
  return HostEntry{.home = words[0] == kUnknownHost ? "" : std::string(words[0]),
                   .pid = static_cast<pid_t>(*pid),
                   .offer = std::string(words[2])};
}

// For each process the lowest that has the same home.
std::vector<int> group_by_home(const std::vector<HostEntry>& entries) {
  std::map<std::string, int> lowest;
  std::vector<int> homes;
  for (int process = 0; process < static_cast<int>(entries.size()); ++process) {
    const std::string& home = entries[process].home;
    homes.push_back(home.empty() ? process : lowest.try_emplace(home, process).first->second);
  }
  return homes;
}

}  // namespace

SharedRegion::SharedRegion(std::size_t bytes)
    : file_(base::make_anonymous_file("plait", bytes)),
      address_(base::address_of(file_)),
      memory_(base::Region::map(file_, bytes, "this rank")) {
  OwnMemory::here().add(address_.inode, memory_);
}

SharedRegion::~SharedRegion() {
  if (file_) OwnMemory::here().remove(address_.inode);
}

std::string SharedRegion::offer() const {
  return file_ ? sentence(address_.fd, ':', address_.device, ':', address_.inode) : "-";
}

HostPeers::HostPeers(int me, int processes) : me_(me), homes_(processes) {
  std::iota(homes_.begin(), homes_.end(), 0);
}

void HostPeers::meet(const std::string& host, AllGather all_gather) {
  const SharedRegion page(sizeof(SleepSign));
  std::vector<HostEntry> entries;
  for (const std::string& text : all_gather(
           write({.home = home_of_this_process(host), .pid = ::getpid(), .offer = page.offer()}))) {
    const auto entry = read(text);
    if (!entry)
      base::fail(Code::system, "what rank ", entries.size(), " told of its host makes no sense");
    entries.push_back(*entry);
  }
  for (const HostEntry& entry : entries) told_homes_.push_back(entry.home);
  const std::vector<int> homes = group_by_home(entries);
  const bool is_one_host =
      std::all_of(homes.begin(), homes.end(), [](int one) { return one == 0; });
  const std::set<int> distinct(homes.begin(), homes.end());
  if (is_one_host || distinct.size() == homes.size()) return;
  homes_ = homes;
  std::vector<std::string> offers;
  for (const HostEntry& entry : entries) {
    pids_.push_back(entry.pid);
    offers.push_back(entry.offer);
  }
  const auto verdicts = all_gather(map_pages(offers) ? "near" : "far");
  std::set<int> apart;
  for (std::size_t process = 0; process < homes.size(); ++process) {
    if (verdicts[process] != "near") apart.insert(homes[process]);
  }
  for (int process = 0; process < static_cast<int>(homes.size()); ++process) {
    if (apart.contains(homes[process])) homes_[process] = process;
  }
  const auto mine = std::count(homes_.begin(), homes_.end(), homes_[me_]);
  if (mine == 1) pages_.clear();
}

// The reason of a failure is of no interest: there is TCP.
bool HostPeers::map_pages(const std::vector<std::string>& offers) try {
  // A kernel that refuses makes sleepers nap shortly instead (see SleepSign).
  static_cast<void>(base::register_for_heavy_fences());
  pages_.resize(homes_.size());
  for (int process = 0; process < static_cast<int>(homes_.size()); ++process) {
    if (has(process)) pages_[process] = map(process, offers[process], sizeof(SleepSign));
  }
  return true;
} catch (const Error&) {
  return false;
}

std::string HostPeers::why_far(int process) const {
  if (has(process) || told_homes_.empty()) return "";
  const std::string& mine = told_homes_[me_];
  const std::string& theirs = told_homes_[process];
  if (mine.empty() || mine != theirs) return difference_of(mine, theirs);
  const bool is_one_host =
      std::count(told_homes_.begin(), told_homes_.end(), mine) == std::ssize(told_homes_);
  return is_one_host ? "all ranks are on one host, where TCP or UCX is only used if asked for"
                     : "a rank of this host cannot map another one's memory";
}

bool HostPeers::has_two_of(const std::vector<int>& processes) const {
  std::set<int> homes;
  for (const int process : processes) homes.insert(homes_[process]);
  return homes.size() < processes.size();
}

base::Region HostPeers::map(int process, const std::string& offer, std::size_t bytes) const {
  const auto address = read_offer(pids_[process], offer);
  if (!address) base::fail(Code::system, "process ", process, " lends no memory: ", offer);
  if (address->pid == ::getpid()) {
    if (base::Region own = OwnMemory::here().find(address->inode); own.bytes() >= bytes) return own;
  }
  return base::Region::map(base::open_file_at(*address), bytes, sentence("process ", process));
}

}  // namespace plait::comm::tcp
