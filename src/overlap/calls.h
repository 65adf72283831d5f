// The frame of every call: it is announced before its first chunk, and what goes wrong in it on one
// rank goes wrong on all.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "comm/interruption.h"
#include "comm/state.h"
#include "overlap/op_impl.h"

namespace plait::overlap {

// What all ranks of a call must agree upon: a size that may differ from rank to rank is left out.
Tag tag_of(const Problem& problem, const Plan& plan);

// Whether chunks travel over an emulated link, or over the network between hosts.
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
      has_thrown_ = true;
      throw;
    }
  }

  bool has_thrown() const { return has_thrown_; }

 private:
  const std::function<void()>* hook_ = nullptr;  // null: none
  bool has_thrown_ = false;
};

// What the caller's own code has thrown leaves the call as it was thrown, and the other ranks are
// told. Whatever else is thrown on one rank is thrown on all in the same words.
template <class Body>
void run_call(Communicator::State& state, const Tag& tag, const PollHook& poll, Body&& body) {
  const comm::Interruption interruption;
  comm::Group& group = state.group();
  const Tag numbered = state.begin_call(tag);
  const auto fail = [&](auto&& failure) {
    if (interruption.has_come()) return group.note_interruption(nullptr);
    group.fail(failure());
    if (!poll.has_thrown()) group.raise();
  };
  const auto failure = [&](const char* why) {
    const int rank = group.rank();
    return comm::Failure{.code = Code::system,
                         .culprit = rank,
                         .sentence = std::string(name(tag.operation)) + ": rank " +
                                     std::to_string(rank) + ": " + why};
  };
  try {
    body(numbered);
    state.note_completed();
  } catch (const Error& error) {
    fail([&] { return comm::failure_of(error); });
    throw;
  } catch (const std::exception& error) {
    fail([&] { return failure(error.what()); });
    throw;
  } catch (...) {
    fail([&] { return failure("something was thrown that is no exception"); });
    throw;
  }
}

}  // namespace plait::overlap
