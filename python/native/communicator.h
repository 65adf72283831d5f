// A communicator as Python holds it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

#include "native.h"
#include "plait/communicator.h"

namespace plait::python {

// Threads of Python that use one communicator do so one after another.
class Turns {
 public:
  // Returns when no other thread has the turn. A signal's handler may run meanwhile: what it raises
  // ends the wait. Error{invalid_argument} where this very thread has the turn already.
  void take();
  void take_without_signals();
  bool try_take();
  void give();

  // True if this thread has it: a signal's handler runs in the midst of a call.
  bool is_mine() const {
    return owner_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }

 private:
  std::timed_mutex mutex_;
  // Memory ordering: relaxed; a thread finds itself only where it has written itself.
  std::atomic<std::thread::id> owner_;
};

class Turn {
 public:
  explicit Turn(Turns& turns) : turns_(turns) { turns_.take(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() { turns_.give(); }

 private:
  Turns& turns_;
};

// Calls release the GIL, so that two threads of Python might use it at once: they take turns.
class PyCommunicator {
 public:
  explicit PyCommunicator(Communicator comm);
  PyCommunicator(const PyCommunicator&) = delete;
  PyCommunicator& operator=(const PyCommunicator&) = delete;
  ~PyCommunicator();

  // Calls f(communicator) without the GIL. Error{invalid_argument} after leave(), and in a signal's
  // handler that runs during another call of the thread.
  template <class F>
  decltype(auto) use(F&& f) {
    const Unlocked released;
    const Turn turn(turns_);
    return f(get());
  }

  // For destructors: calls f() without the GIL, and throws nothing. Where a handler raises while
  // another thread is waited for, or where a handler itself destroys, the group ends.
  template <class F>
  void use_at_the_end(F&& f) noexcept {
    const Unlocked released;
    const bool has_turn = begin_the_end();
    f();
    if (has_turn) turns_.give();
  }

  // The communicator, for questions that are allowed while another thread waits in it.
  Communicator& get() const;

  // Leaves the group. Where another thread waits in it, the group is ended, and that thread gets an
  // error. Error{invalid_argument} in a signal's handler that runs during a call of this thread.
  void leave();

  // Ends the group. It needs no turn; leave() waits until it is done.
  void abort(std::string_view reason);

  bool left() const { return comm_ == nullptr; }

  // Records into a trace, which is kept until another takes its place, or into none.
  void set_trace(nb::object trace);

  // The last argument of set_trace(), or none.
  nb::object trace() const { return trace_.is_valid() ? trace_ : nb::none(); }

  // A part that is split off records where its parent does.
  void keep_trace_of(const PyCommunicator& parent) { trace_ = parent.trace_; }

 private:
  bool begin_the_end() noexcept;

  Turns turns_;
  std::unique_ptr<Communicator> comm_;
  bool is_leaving_ = false;  // guarded by the GIL
  nb::object trace_;
  std::mutex aborting_;  // a thread that waits for it does not have the GIL
};

}  // namespace plait::python
