// The frame of every call: it is announced before its first chunk, and what goes wrong in it on one
// rank goes wrong on all.
#pragma once

#include "comm/state.h"
#include "overlap/operation.h"

namespace plait::overlap {

// What all ranks of a call must agree upon: a size that may differ from rank to rank is left out.
Tag tag_of(const Problem& problem, const Plan& plan);

template <class Body>
void run_call(Communicator::State& state, const Tag& tag, Body&& body) {
  const Tag numbered = state.begin_call(tag);
  try {
    body(numbered);
  } catch (const Error& error) {
    state.group().fail_and_raise(comm::failure_of(error));
  } catch (const std::exception& error) {
    state.group().fail_and_raise({.code = Code::system,
                                  .culprit = state.group().rank(),
                                  .sentence = std::string(name(tag.operation)) + ": rank " +
                                              std::to_string(state.group().rank()) + ": " +
                                              error.what()});
  }
}

}  // namespace plait::overlap
