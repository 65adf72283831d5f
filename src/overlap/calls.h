// The frame of every call: it is announced before its first chunk, and what goes wrong in it on one
// rank goes wrong on all.
#pragma once

#include <functional>

#include "comm/core/interruption.h"
#include "comm/session/state.h"
#include "overlap/op_impl.h"

namespace plait::overlap {

// The properties on which all ranks of a call must agree: a size that may differ from rank to rank
// is left out.
Tag tag_of(const Problem& problem, const Plan& plan);

// True if chunks travel over an emulated link, or over the network between hosts.
inline bool is_over_a_link(Communicator& comm) { return comm.link() || comm.state().hosts() > 1; }

// The caller's poll hook, during one call. What it throws leaves the call as it is.
class PollHook {
 public:
  PollHook() = default;
  explicit PollHook(const std::function<void()>* hook) : hook_(hook) {}

  void operator()() {
    if (hook_ == nullptr) return;
    try {
      (*hook_)();
    } catch (...) {
      note_thrown();
      throw;
    }
  }

  // Other code of the caller's has thrown, which counts likewise.
  void note_thrown() { has_thrown_ = true; }

  bool has_thrown() const { return has_thrown_; }

 private:
  const std::function<void()>* hook_ = nullptr;  // null: none
  bool has_thrown_ = false;
};

// An exception of the caller's own code leaves the call as it was thrown, and the other ranks are
// told. Any other exception on one rank is thrown on all in the same words.
template <class Body>
void run_call(Communicator::State& state, const Tag& tag, const PollHook& poll, Body&& body) {
  const comm::Interruption interruption;
  comm::Group& group = state.group();
  const Tag numbered = state.begin_call(tag);
  group.set_poll_hook(nullptr);  // from here on the flows call it
  try {
    body(numbered);
    state.note_completed();
  } catch (...) {
    if (interruption.has_come()) {
      group.note_interruption(nullptr);
    } else {
      group.fail(comm::failure_of_caught(name(tag.operation), group.rank()));
      if (!poll.has_thrown()) group.raise();
    }
    throw;
  }
}

}  // namespace plait::overlap
