// What the ranks of a round do until one of them goes: a random program, the same on all of them.
#pragma once

#include "chaos/round.h"

namespace plait::chaos {

// Runs the program and writes one Report to `pipe` when it ends. Doesn't return.
[[noreturn]] void be_rank(const Scene& scene, int rank, Seat& seat, int pipe);

}  // namespace plait::chaos
