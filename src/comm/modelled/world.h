// Ranks that are only played, in one thread and on clocks of their own, over a modelled network.
//
//   World world({.ranks = 8, .network = {.link = parse_link("25gbit,5us")}});
//   world.run([](Communicator& comm) { ... });    // as every rank, each from its time 0 on
//   world.end();                                  // when the last rank had done it, in nanoseconds
//
// It is always the rank whose time is earliest that goes on. So whatever a rank looks at is as it
// would be at that time, and the same run gives the same times to the last bit. What ranks really
// compute takes no time; what should take some is said to their clock (VirtualClock). Where all
// wait and nothing is on its way, all ranks get an Error that says who waits for what.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "comm/modelled/network.h"
#include "plait/communicator.h"
#include "trace/record.h"

namespace plait::comm::modelled {

// What moving and adding up bytes costs a rank that plays it.
struct Chores {
  double bytes_per_second = std::numeric_limits<double>::infinity();  // read and written
  base::Nanoseconds each = 0;
  // Engines of its own do it while the rank goes on, and write what goes to a peer straight to the
  // wire: that takes no longer than the wire does.
  bool beside = false;
};

struct WorldOptions {
  int ranks = 1;
  Network network = {};

  // Slots have no memory of their own: chores are played, and take this time.
  bool hollow = false;
  Chores chores = {};

  // How long a rank that waits takes to look at one peer, which is how fine its waits are.
  base::Nanoseconds look = 0;

  bool records = false;  // keeps what happens, for a timeline
};

class World {
 public:
  explicit World(const WorldOptions& options);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  // Throws the first Error of a rank, when all have ended. Once.
  void run(const std::function<void(Communicator&)>& body);

  base::Nanoseconds end() const;

  // By rank.
  std::vector<trace::RankRecords> take_records();

  class Stage;  // the ranks' side of it

 private:
  std::shared_ptr<Stage> stage_;
};

}  // namespace plait::comm::modelled
