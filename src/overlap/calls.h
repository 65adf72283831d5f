// The frame of every call: it is announced before its first chunk, and what goes wrong in it on one
// rank goes wrong on all.
#pragma once

#include "comm/state.h"
#include "overlap/operation.h"

namespace plait::overlap {

// What all ranks of a call must agree upon: a size that may differ from rank to rank is left out.
Tag tag_of(const Problem& problem, const Plan& plan);

// An emulated one, or what there is between hosts.
inline bool is_over_a_link(Communicator& comm) { return comm.link() || comm.state().hosts() > 1; }

template <class Body>
void run_call(Communicator::State& state, const Tag& tag, Body&& body) {
  const Tag numbered = state.begin_call(tag);
  const auto fail = [&](const char* why) {
    const int rank = state.group().rank();
    state.group().fail_and_raise({.code = Code::system,
                                  .culprit = rank,
                                  .sentence = std::string(name(tag.operation)) + ": rank " +
                                              std::to_string(rank) + ": " + why});
  };
  try {
    body(numbered);
  } catch (const Error& error) {
    if (state.group().was_interrupted()) throw;
    state.group().fail_and_raise(comm::failure_of(error));
  } catch (const std::exception& error) {
    if (state.group().was_interrupted()) throw;
    fail(error.what());
  } catch (...) {  // what a caller's poll hook may throw
    if (state.group().was_interrupted()) throw;
    fail("something was thrown that is no exception");
  }
}

}  // namespace plait::overlap
