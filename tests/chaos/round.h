// One round of chaos: ranks that work, one of them that ends, and the results of the others.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "plait/error.h"
#include "plait/operator.h"

namespace plait::chaos {

enum class Loss {
  kill,   // SIGKILL
  leave,  // exit() with all its communicators, whose groups it leaves
  raise,  // an exception that unwinds the communicators
  stop,   // SIGSTOP until all other ranks have given up
};
constexpr bool is_kill(Loss loss) { return loss == Loss::kill || loss == Loss::stop; }
inline constexpr std::array<const char*, 4> kLossTexts = {"is killed", "exits", "throws",
                                                          "is stopped"};

// The activity of a rank, as far as the moment of the end depends on it.
enum class Stage : int {
  starting,
  connecting,
  working,
  making_mailbox,
  splitting,
  preparing,
  multiplying
};
inline constexpr std::array<const char*, 7> kStages = {
    "starting",   "connecting", "working", "making a mailbox", "splitting", "preparing an operator",
    "multiplying"};

// The work of the ranks.
enum class Work { collectives, operators };

// Everything in a round follows from its seed.
struct Scene {
  std::uint64_t seed;
  int world;
  int victim;
  Work work;
  Loss loss;
  Stage stage;              // wait until the victim does this,
  int calls;                // in this call or a later one,
  base::Nanoseconds delay;  // and then so long
  base::Nanoseconds timeout;
  std::string job;
  bool has_workers;  // each rank forks a worker at some moment, which outlives it
  bool has_folder;   // ranks meet in a private folder
};
Scene make_scene(std::uint64_t seed, std::optional<int> world, base::Nanoseconds timeout);
std::string describe(const Scene& scene);

// In memory that all processes of a round share: each rank writes its own, and the parent reads
// all.
struct RankState {
  std::atomic<Stage> stage;
  std::atomic<int> calls;
  std::atomic<bool> connected;
  std::atomic<base::Nanoseconds> gone;  // set by a victim that ends by itself
  std::atomic<pid_t> worker;            // 0: none
  std::atomic<bool> over;               // the worker may end
};

// A rank's report about its failure.
struct Report {
  int rank;
  Code code;
  int culprit;                 // in the world; Error::kNoRank if the Error has no culprit
  bool surprising;             // an exception other than Error, or wrong sums
  bool names;                  // the sentence contains the culprit
  std::uint64_t group;         // the group of the program
  std::optional<Operator> op;  // the operator that was running, if any
  base::Nanoseconds at;
  std::array<char, 640> sentence;
};

struct Outcome {
  int hangs = 0;
  std::vector<std::string> wrong;
  std::vector<std::string> left_over;
  bool joined = false;                     // the victim had joined the group
  int workers = 0;                         // that were alive when all ranks had ended
  bool multiplied = false;                 // the victim was in an operator
  std::vector<base::Nanoseconds> noticed;  // the time after the victim's end, by survivor
};
Outcome run_round(const Scene& scene, bool isolated);  // see leftovers.h

}  // namespace plait::chaos
