// Ranks that are lost or late in the midst of something, for tests of operators and of layers.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "conformance/ranks.h"

namespace plait {

// Ends the process as a kill would: nothing is destroyed.
[[noreturn]] inline void die() { ::_exit(0); }

// Expects that the call throws an error that names this rank as lost, and returns it.
template <class Call>
Error expect_loss_of(int rank, const Call& call) {
  Error error = expect_error(Code::peer_lost, call);
  EXPECT_EQ(error.culprit(), rank) << error.what();
  EXPECT_TRUE(contains(error.what(), "rank " + std::to_string(rank))) << error.what();
  return error;
}

// `multiply` makes a product without communication, and calls the hook from time to time. Expects
// that a rank whose deadline passes meanwhile says that the other one multiplies.
using Multiply = std::function<void(Communicator& comm, const std::function<void()>& hook)>;
void expect_that_a_late_rank_multiplies(const Multiply& multiply);

}  // namespace plait
