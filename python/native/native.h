// What the sources of the module share. Each binds one public header, under the names that it has
// in C++.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

namespace plait::python {

namespace nb = nanobind;

void bind_error(nb::module_& m);
void bind_dtype(nb::module_& m);
void bind_trace(nb::module_& m);
void bind_communicator(nb::module_& m);
void bind_collectives(nb::module_& m);
void bind_timeline(nb::module_& m);
void bind_plan(nb::module_& m);
void bind_settings(nb::module_& m);
void bind_quantized(nb::module_& m);
void bind_packed_weight(nb::module_& m);

// Threads that have released the GIL to compute or to wait. Guarded by the GIL.
inline int threads_without_gil = 0;

// Runs what computes or waits without the GIL.
class Unlocked {
 public:
  Unlocked() { ++threads_without_gil; }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked() {
    released_.reset();  // takes the GIL again
    --threads_without_gil;
  }

 private:
  std::optional<nb::gil_scoped_release> released_{std::in_place};
};

template <class F>
decltype(auto) unlocked(F&& f) {
  const Unlocked released;
  return f();
}

}  // namespace plait::python
