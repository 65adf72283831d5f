// Functions of Python's that a call makes while it waits.
#pragma once

#include <optional>
#include <stdexcept>

#include "native.h"
#include "plait/ops.h"

namespace plait::python {

// A call with a hook of Python's, or none. What the hook raises comes out of the call; other ranks
// get its words.
class Polled {
 public:
  explicit Polled(nb::handle function) : function_(function) {}

  // `arguments`: of the function.
  template <class F, class... Arguments>
  auto run(F&& call, const Arguments&... arguments) try {
    return call(function_.is_none() ? PollHook() : [&] { ask(arguments...); });
  } catch (...) {
    if (raised_) throw nb::python_error(*raised_);
    throw;
  }

 private:
  template <class... Arguments>
  void ask(const Arguments&... arguments) try {
    const nb::gil_scoped_acquire gil;
    nb::borrow(function_)(arguments...);
  } catch (nb::python_error& raised) {
    const nb::gil_scoped_acquire gil;
    const nb::str words = nb::str("{}: {}").format(raised.type().attr("__name__"), raised.value());
    raised_.emplace(raised);
    throw std::runtime_error(words.c_str());
  }

  nb::handle function_;
  std::optional<nb::python_error> raised_;
};

}  // namespace plait::python
