// Declarations that the sources of the module share. Each binds one public header, under the names
// that it has in C++.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <utility>

namespace plait::python {

namespace nb = nanobind;

void bind_error(nb::module_& m);
void bind_dtype(nb::module_& m);
void bind_trace(nb::module_& m);
void bind_place(nb::module_& m);
void bind_link(nb::module_& m);
void bind_communicator(nb::module_& m);
void bind_collectives(nb::module_& m);
void bind_all_to_all_rows(nb::module_& m);
void bind_timeline(nb::module_& m);
void bind_plan(nb::module_& m);
void bind_settings(nb::module_& m);
void bind_quantized(nb::module_& m);
void bind_packed_weight(nb::module_& m);
void bind_views(nb::module_& m);
void bind_plans(nb::module_& m);
void bind_ops(nb::module_& m);
void bind_grouped(nb::module_& m);
void bind_experts(nb::module_& m);
void bind_columns(nb::module_& m);
void bind_vocabulary(nb::module_& m);
void bind_linear(nb::module_& m);
void bind_torch(nb::module_& m);
void bind_direct(nb::module_& m);
void bind_ulysses(nb::module_& m);

// Runs what computes or waits without the GIL.
//
// A thread that asks for the GIL when Python has ended is stopped in the midst of C++, which aborts
// the process. Therefore, once end_of_python() has been called, a thread stays where it would ask.
class Unlocked {
 public:
  Unlocked() = default;
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked();

 private:
  std::optional<nb::gil_scoped_release> released_{std::in_place};
};

// An object for functions that run without the GIL: copies of the object itself need it, and copies
// of the pointer don't.
inline std::shared_ptr<nb::object> shared(nb::object object) {
  return {new nb::object(std::move(object)), [](nb::object* held) {
            const nb::gil_scoped_acquire gil;
            delete held;
          }};
}

// Called once, by the thread that ends Python. Returns when no other thread asks for the GIL.
void end_of_python();

template <class F>
decltype(auto) unlocked(F&& f) {
  const Unlocked released;
  return f();
}

}  // namespace plait::python
