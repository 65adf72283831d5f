#include "comm/mpi/plugin/neighbours.h"

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
#include "comm/build_name.h"

namespace plait::comm::mpi {
namespace {

struct Card {
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

// What the process runs, as far as its card can be read.
std::string build_in(const std::string& bytes) {
  const std::string build = bytes.substr(0, std::min(bytes.find('\0'), kLongestBuildName));
  const bool is_a_word =
      std::all_of(build.begin(), build.end(), [](unsigned char c) { return c > ' ' && c < 0x7f; });
  return build.empty() || !is_a_word ? "of another build" : build;
}

// All processes read the same cards, and find the same.
void check_builds(const std::vector<std::string>& cards) {
  for (std::size_t process = 1; process < cards.size(); ++process) {
    const std::string first = build_in(cards[0]);
    const std::string one = build_in(cards[process]);
    if (one == first && cards[process].size() == sizeof(Card)) continue;
    throw Error(Code::mismatch,
                base::sentence("rank ", process, " runs plait ", one, ", rank 0 plait ", first,
                               ": all ranks must run the same build"),
                static_cast<int>(process));
  }
}

Card parse(const std::string& bytes) {
  Card card = {};
  PLAIT_CHECK(bytes.size() == sizeof(card), "a process introduces itself by ", bytes.size(),
              " bytes instead of ", sizeof(card));
  std::memcpy(&card, bytes.data(), sizeof(card));
  card.realm.back() = '\0';
  return card;
}

}  // namespace

std::string Neighbours::card() {
  Card card = {.build = {},
               .pid = ::getpid(),
               .start = base::start_of(::getpid()),
               .realm = {},
               .cpus = base::allowed_cpus()};
  build_name().copy(card.build.data(), kLongestBuildName);
  const std::string realm = realm_of_pids();
  if (realm.size() < card.realm.size()) std::memcpy(card.realm.data(), realm.data(), realm.size());
  return {reinterpret_cast<const char*>(&card), sizeof(card)};
}

Neighbours::Neighbours(const std::vector<std::string>& cards) {
  check_builds(cards);
  const Card mine = parse(card());
  const std::string realm = mine.realm.data();
  cpu_set_t cpus = mine.cpus;
  int near = 0;
  for (const std::string& bytes : cards) {
    const Card card = parse(bytes);
    Neighbour& one = all_.emplace_back(Neighbour{.pid = card.pid, .start = card.start});
    if (realm.empty() || realm != card.realm.data()) continue;
    // Invalid on kernels before 5.3, and then the pid must do.
    one.pidfd = base::Fd(static_cast<int>(::syscall(SYS_pidfd_open, card.pid, 0)));
    // A host that was cloned from the same snapshot calls itself alike: where this one has no such
    // process, or another under its pid, it isn't near. It has not died.
    one.near = !base::has_ended(one.pidfd, one.pid, one.start);
    if (!one.near) continue;
    CPU_OR(&cpus, &cpus, &card.cpus);
    ++near;
  }
  crowded_ = CPU_COUNT(&cpus) < near;
}

bool Neighbours::has_ended(int process) const {
  const Neighbour& one = all_[process];
  return one.near && base::has_ended(one.pidfd, one.pid, one.start);
}

bool Neighbours::any_has_ended() const {
  for (int process = 0; process < static_cast<int>(all_.size()); ++process) {
    if (has_ended(process)) return true;
  }
  return false;
}

std::string Neighbours::describe(int process) const {
  return base::sentence("pid ", all_[process].pid);
}

}  // namespace plait::comm::mpi
