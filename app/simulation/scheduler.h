// Runs simulated ranks in turn, and holds what they share: wires, slots and all-gathers.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/fiber.h"
#include "comm/core/group.h"
#include "simulation/sim_rank.h"
#include "simulation/simulation.h"

namespace plait::comm::modelled {

struct Slots;

class Scheduler {
 public:
  explicit Scheduler(const SimulationOptions& options);
  ~Scheduler();

  const SimulationOptions& options() const { return options_; }
  int world() const { return options_.ranks; }
  Wires& wires() { return wires_; }
  SimRank& rank(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  const SimRank& rank(int rank) const { return *ranks_[static_cast<std::size_t>(rank)]; }

  // Runs all ranks to their end.
  void run(const std::function<void(int rank)>& body);

  // The calling rank goes on at `until`, or earlier where it is woken; the others take their turns.
  void sleep(SimRank& self, Nanoseconds until);
  void wake(SimRank& self, Nanoseconds at);

  // Collective: the contributions of all ranks, in rank order.
  using Contributions = std::shared_ptr<const std::vector<std::string>>;
  Contributions meet(SimRank& self, const std::string& mine, const Tag& tag);

  // A mailbox: the number of its group among a rank's groups, and its own among the group's
  // mailboxes. The group's collectives use mailbox 0, which always has storage.
  struct Which {
    int group, number;
    auto operator<=>(const Which&) const = default;
  };
  Slots& slots(const Which& which, const MailboxDesc& desc);

  // The end of the whole group; the first record of each kind stands.
  bool has_ended(End end) const { return !records_[static_cast<std::size_t>(end)].empty(); }
  const Failure& record_of(End end) const {
    return records_[static_cast<std::size_t>(end)].front();
  }
  void end(End end, const Failure& failure);
  void raise_if_ended() const;

 private:
  struct Gathering {
    std::shared_ptr<std::vector<std::string>> contributions;
    std::vector<bool> here;
    int count = 0;
    bool over = false;
  };
  std::shared_ptr<Gathering> next_gathering() const;
  void wake_all(Nanoseconds at);
  void refuse_deadlock();

  SimulationOptions options_;
  Wires wires_;
  std::vector<std::unique_ptr<SimRank>> ranks_;
  std::set<std::pair<Nanoseconds, int>> wakeups_;  // time and rank
  std::shared_ptr<Gathering> gathering_;
  std::map<Which, std::unique_ptr<Slots>> slots_;
  std::array<std::vector<Failure>, kEnds> records_;  // one at most of each kind
};

}  // namespace plait::comm::modelled
