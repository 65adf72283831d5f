// One round of chaos: ranks that work, one of them that goes, and what became of the others.
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

enum class Manner {
  kill,   // SIGKILL
  leave,  // exit() with all its communicators, whose groups it leaves
  raise,  // an exception that unwinds the communicators
  stop,   // SIGSTOP until everybody else has given up
};
constexpr bool is_kill(Manner manner) { return manner == Manner::kill || manner == Manner::stop; }
inline constexpr std::array<const char*, 4> kManners = {"is killed", "exits", "throws",
                                                        "is stopped"};

// What a rank is doing, as far as the moment of its end depends on it.
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

// What they do all the time.
enum class Work { collectives, operators };

// All of a round follows from its seed.
struct Scene {
  std::uint64_t seed;
  int world;
  int victim;
  Work work;
  Manner manner;
  Stage stage;              // wait until the victim does this,
  int calls;                // in this call or a later one,
  base::Nanoseconds delay;  // and then so long
  base::Nanoseconds timeout;
  std::string job;
  bool has_workers;  // each rank forks one at some moment, which outlives it
  bool has_folder;   // there is a private folder to meet in
};
Scene make_scene(std::uint64_t seed, std::optional<int> world, base::Nanoseconds timeout);
std::string describe(const Scene& scene);

// In memory that all processes of a round share: each rank writes its own, and the parent reads.
struct Seat {
  std::atomic<Stage> stage;
  std::atomic<int> calls;
  std::atomic<bool> connected;
  std::atomic<base::Nanoseconds> gone;  // for a victim that goes by itself
  std::atomic<pid_t> worker;            // 0: none
  std::atomic<bool> over;               // the worker may end
};

// What a rank says when it can't go on.
struct Report {
  int rank;
  Code code;
  int culprit;                 // in the world; Error::kNobody where the Error named none
  bool surprising;             // no Error but something else, or wrong sums
  bool names;                  // the sentence has the culprit in it
  std::uint64_t group;         // in which of the program's groups
  std::optional<Operator> op;  // in whose run, where it was in one
  base::Nanoseconds at;
  std::array<char, 640> sentence;
};

struct Outcome {
  int hangs = 0;
  std::vector<std::string> wrong;
  std::vector<std::string> left_over;
  bool joined = false;                     // whether the victim had joined the group
  int workers = 0;                         // that were alive when all ranks had ended
  bool multiplied = false;                 // whether it was in an operator
  std::vector<base::Nanoseconds> noticed;  // how long after the victim's end, by survivor
};
Outcome play(const Scene& scene, bool isolated);  // see surroundings.h

}  // namespace plait::chaos
