#include "plait/settings.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <optional>
#include <string>
#include <utility>

#include "named.h"
#include "native.h"

namespace plait::python {
namespace {

// The rows of `customized` as {(m, k, n): plan}.
nb::typed<nb::dict, nb::typed<nb::tuple, int, int, int>, Plan> customized(
    const Settings& settings) {
  nb::dict rows;
  for (const auto& [shape, plan] : settings.customized)
    rows[nb::make_tuple(shape.m, shape.k, shape.n)] = plan;
  return nb::steal<nb::typed<nb::dict, nb::typed<nb::tuple, int, int, int>, Plan>>(rows.release());
}

}  // namespace

void bind_settings(nb::module_& m) {
  nb::class_<Settings>(m, "Settings",
                       "What is set for a whole program without changing it: in a file, in the\n"
                       "environment, or as values.")
      .def(nb::init<>())
      .def(
          "copy", [](const Settings& self) { return self; }, "The same settings, to change.")
      .def_prop_rw(
          "plan", [](const Settings& self) { return self.plan; },
          [](Settings& self, std::optional<Named<Plan>> plan) { self.plan = plan; },
          nb::for_setter(nb::arg("plan").none()))
      .def_prop_ro("customized", &customized, "Plans of single shapes: {(m, k, n): plan}.")
      .def_rw("column_backward", &Settings::column_backward)
      .def_rw("recompute_all_gather", &Settings::recompute_all_gather)
      .def_rw("aligned_packing", &Settings::aligned_packing)
      .def_prop_rw(
          "wire",
          [](const Settings& self) {
            return self.wire == kAutomaticWire ? std::nullopt : std::optional(self.wire);
          },
          [](Settings& self, Named<Dtype> wire) { self.wire = wire_of(wire); },
          nb::for_setter(nb::arg("wire").none()))
      .def_rw("threads", &Settings::threads)
      .def_rw("backend", &Settings::backend)
      .def_rw("plan_cache", &Settings::plan_cache)
      .def_rw("tune_online", &Settings::tune_online, nb::arg().none())
      .def(
          "__eq__", [](const Settings& a, const Settings& b) { return a == b; }, nb::is_operator(),
          nb::sig("def __eq__(self, other: object, /) -> bool"));
  m.def("load_settings", &load_settings,
        "Read the file that PLAIT_CONFIG names, and the environment, which goes before it.");
  m.def("parse_settings", &parse_settings, nb::arg("toml"), nb::arg("file") = "settings",
        "Read settings from the text of a file. Refusals call it `file`.");
}

}  // namespace plait::python
