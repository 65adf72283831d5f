// A communicator as Python holds it.
#pragma once

#include <memory>
#include <mutex>
#include <string_view>

#include "native.h"
#include "plait/communicator.h"

namespace plait::python {

// Calls release the GIL, so that two threads of Python might use it at once: they take turns.
class PyCommunicator {
 public:
  explicit PyCommunicator(Communicator comm);
  PyCommunicator(const PyCommunicator&) = delete;
  PyCommunicator& operator=(const PyCommunicator&) = delete;
  ~PyCommunicator();

  // Calls f(communicator) without the GIL. Error{invalid_argument} after leave().
  template <class F>
  decltype(auto) use(F&& f) {
    const Unlocked released;
    const std::lock_guard turn(turns_);
    return f(get());
  }

  // What may be asked while another thread waits in it.
  Communicator& get() const;

  // Leaves the group. Where a thread waits in it, the group is ended, and the thread gets an error.
  void leave();
  bool left() const { return comm_ == nullptr; }

  // Records into a trace, which is kept until another takes its place, or into none.
  void set_trace(nb::object trace);

  // What set_trace() was given last, or none.
  nb::object trace() const { return trace_.is_valid() ? trace_ : nb::none(); }

  // What is split off records where its parent does.
  void keep_trace_of(const PyCommunicator& parent) { trace_ = parent.trace_; }

 private:
  std::mutex turns_;
  std::unique_ptr<Communicator> comm_;
  nb::object trace_;
};

}  // namespace plait::python
