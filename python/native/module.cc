// The module plait._native.
#include "native.h"
#include "plait/version.h"

NB_MODULE(_native, m) {
  using namespace plait::python;
#ifdef NDEBUG
  // Python does not destroy everything at its end, which is no mistake of a user's.
  nb::set_leak_warnings(false);
#endif
  // For tests, which end with nothing left.
  m.def("_warn_of_leaks", &nb::set_leak_warnings, nb::arg("on"),
        "Say at the end of the program which objects were not destroyed.");
  m.doc() = "libplait for Python. Import its names from plait.";
  m.attr("version") = nb::str(plait::kVersion.data(), plait::kVersion.size());
  bind_error(m);
  bind_dtype(m);
  bind_trace(m);
  bind_place(m);
  bind_link(m);
  bind_communicator(m);
  bind_collectives(m);
  bind_all_to_all_rows(m);
  bind_timeline(m);
  bind_plan(m);
  bind_settings(m);
  bind_quantized(m);
  bind_packed_weight(m);
  bind_views(m);
  bind_plans(m);
  bind_ops(m);
  bind_grouped(m);
  bind_experts(m);
  bind_columns(m);
  bind_vocabulary(m);
  bind_linear(m);
  bind_torch(m);
  bind_direct(m);
  bind_ulysses(m);
}
