// Simulated ranks, all in one thread and each on a clock of its own, over a modelled network.
//
//   Simulation simulation({.ranks = 8, .network = {.link = parse_link("25gbit,5us")}});
//   simulation.run([](Communicator& comm) { ... });  // as every rank, each from its time 0 on
//   simulation.end();                                // the last rank's end, in nanoseconds
//
// The rank whose time is earliest always goes on. Therefore a rank sees everything as it would be
// at that time, and equal runs give equal times to the last bit. What ranks really compute takes no
// time; the caller tells each rank (rank_of()) what should take some. If all ranks wait and
// nothing is on its way, all of them get an Error that names the waiting ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "plait/communicator.h"
#include "simulation/network.h"
#include "trace/record.h"

namespace plait::comm::modelled {

// The time that copying and adding up bytes takes a rank.
struct MemoryCosts {
  double bytes_per_second = std::numeric_limits<double>::infinity();  // read and written
  base::Nanoseconds each = 0;
  // Engines of the device do it while the rank goes on. They write what goes to a peer straight to
  // the wire, which takes no longer than the wire does.
  bool in_background = false;
};

struct SimulationOptions {
  int ranks = 1;
  Network network = {};

  // Slots share one block of memory: copies and sums are simulated alone, and done nowhere.
  bool no_storage = false;
  MemoryCosts memory_costs = {};

  // How long a rank that waits takes to poll one peer, which is how fine its waits are.
  base::Nanoseconds poll_cost = 0;

  bool records = false;  // keeps what happens, for a timeline
};

class Scheduler;
class SimRank;

class Simulation {
 public:
  explicit Simulation(const SimulationOptions& options);
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;
  ~Simulation();

  // Throws the first Error of a rank, when all have ended. Once.
  void run(const std::function<void(Communicator&)>& body);

  // The rank that runs with this communicator: its clock (sim_rank.h).
  static SimRank& rank_of(Communicator& comm);

  base::Nanoseconds end() const;

  // The longest time that a rank's processor has worked for the network.
  base::Nanoseconds network_work() const;

  // Indexed by rank.
  std::vector<trace::RankRecords> take_records();

 private:
  std::shared_ptr<Scheduler> scheduler_;
};

}  // namespace plait::comm::modelled
