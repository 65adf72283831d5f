// The program of a round's ranks until one of them ends: a random program, equal on all of them.
#pragma once

#include "chaos/round.h"

namespace plait::chaos {

// Runs the program and writes one Report to `pipe` when it ends. Does not return.
[[noreturn]] void be_rank(const Scene& scene, int rank, RankState& state, int pipe);

}  // namespace plait::chaos
