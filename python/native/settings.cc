#include "plait/settings.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "named.h"
#include "native.h"
#include "plait/error.h"

namespace plait::python {
namespace {

using ShapePlans = std::map<ProductShape, Plan>;
using ShapeKey = nb::typed<nb::tuple, int, int, int>;
using PlansInPython = nb::typed<nb::dict, ShapeKey, Plan>;

std::string shown(nb::handle object) { return nb::cast<std::string>(nb::repr(object)); }

[[noreturn]] void refuse(const std::string& reason) {
  throw Error(Code::invalid_argument, "Settings.customized: " + reason);
}

// (16384, 5120, 1920), or "[16384, 5120, 1920]" as CoC writes it
ProductShape read_shape(nb::handle key) {
  nb::object sizes = nb::borrow(key);
  std::array<std::int64_t, 3> read{};
  try {
    if (nb::isinstance<nb::str>(key)) sizes = nb::module_::import_("json").attr("loads")(key);
    bool usable = nb::isinstance<nb::sequence>(sizes) && nb::len(sizes) == read.size();
    for (std::size_t i = 0; usable && i < read.size(); ++i)
      usable = nb::try_cast(sizes[i], read[i], /*convert=*/false) && read[i] > 0;
    if (usable) return {.m = read[0], .k = read[1], .n = read[2]};
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_ValueError)) throw;  // of json
  }
  refuse("the key " + shown(key) + " is not (m, k, n), three sizes of at least 1");
}

// A plan, its text, or one of CoC's numbers.
Plan read_plan(nb::handle value) {
  if (nb::isinstance<Plan>(value)) return nb::cast<Plan>(value);
  if (nb::isinstance<nb::str>(value)) return called<Plan>(nb::cast<std::string_view>(value));
  std::int64_t number = 0;
  const bool is_number = !nb::isinstance<nb::bool_>(value) && nb::try_cast(value, number, false);
  if (is_number && number == -1) return {.schedule = Schedule::fused};
  if (is_number && number == 1) return {.schedule = Schedule::serial};
  if (is_number && number > 1 && number <= kMostParts)
    return {.schedule = Schedule::pipelined, .parts = static_cast<int>(number)};
  refuse(shown(value) + " is no plan: it can be a plan or its text, 1 (serial), 2 to " +
         std::to_string(kMostParts) + " (parts) or -1 (fused)");
}

void update(ShapePlans& plans, nb::handle mapping) {
  for (const nb::handle pair : mapping.attr("items")())
    plans.insert_or_assign(read_shape(pair[0]), read_plan(pair[1]));
}

PlansInPython copy_of(const ShapePlans& plans) {
  nb::dict copy;
  for (const auto& [shape, plan] : plans) copy[nb::make_tuple(shape.m, shape.k, shape.n)] = plan;
  return nb::steal<PlansInPython>(copy.release());
}

// Methods of a dictionary, on the settings' own rows: what is written here is set.
void bind_customized(nb::module_& m) {
  nb::class_<ShapePlans>(m, "ShapePlans",
                         "Plans of single shapes, {(m, k, n): plan}: a mapping that is a part of\n"
                         "its settings. Keys and plans may also be as CoC writes them:\n"
                         "{\"[16384, 5120, 1920]\": 8}.")
      .def("__len__", [](const ShapePlans& self) { return self.size(); })
      .def("__repr__", [](const ShapePlans& self) { return shown(copy_of(self)); })
      .def("__iter__",
           [](const ShapePlans& self) {
             return nb::typed<nb::iterator, ShapeKey>(nb::iter(copy_of(self)));
           })
      .def("__contains__",
           [](const ShapePlans& self, nb::handle key) { return self.contains(read_shape(key)); })
      .def("__getitem__",
           [](const ShapePlans& self, nb::handle key) {
             const auto row = self.find(read_shape(key));
             if (row == self.end()) throw nb::key_error(shown(key).c_str());
             return row->second;
           })
      .def("__setitem__",
           [](ShapePlans& self, nb::handle key, nb::handle plan) {
             self.insert_or_assign(read_shape(key), read_plan(plan));
           })
      .def("__delitem__",
           [](ShapePlans& self, nb::handle key) {
             if (self.erase(read_shape(key)) == 0) throw nb::key_error(shown(key).c_str());
           })
      .def(
          "__eq__",
          [](const ShapePlans& self, nb::handle other) {
            if (nb::isinstance<ShapePlans>(other)) return self == nb::cast<ShapePlans&>(other);
            return copy_of(self).equal(other);
          },
          nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("copy", &copy_of)
      .def("keys",
           [](const ShapePlans& self) {
             return nb::typed<nb::list, ShapeKey>(copy_of(self).keys());
           })
      .def("values",
           [](const ShapePlans& self) { return nb::typed<nb::list, Plan>(copy_of(self).values()); })
      .def(
          "items",
          [](const ShapePlans& self) {
            return nb::typed<nb::list, nb::typed<nb::tuple, ShapeKey, Plan>>(copy_of(self).items());
          })
      .def("update", &update, nb::arg("plans"))
      .def("clear", [](ShapePlans& self) { self.clear(); });
}

}  // namespace

void bind_settings(nb::module_& m) {
  bind_customized(m);
  nb::class_<Settings>(m, "Settings",
                       "Options of a whole program, set without changing it: in a file, in the\n"
                       "environment, or as values.")
      .def(nb::init<>())
      .def(
          "copy", [](const Settings& self) { return self; }, "A copy of the settings, to change.")
      .def_prop_rw(
          "plan", [](const Settings& self) { return self.plan; },
          [](Settings& self, std::optional<Named<Plan>> plan) { self.plan = plan; },
          nb::for_setter(nb::arg("plan").none()))
      .def_prop_rw(
          "customized", [](Settings& self) -> ShapePlans& { return self.customized; },
          [](Settings& self, nb::handle plans) {
            ShapePlans read;  // all of them, or none
            update(read, plans);
            self.customized = std::move(read);
          },
          nb::rv_policy::reference_internal, "Plans of single shapes: {(m, k, n): plan}.")
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
  m.def("load_settings", nb::overload_cast<>(&load_settings),
        "Read the file that PLAIT_CONFIG names, and the environment, which goes before it.");
  m.def("load_settings", nb::overload_cast<std::string_view, std::string_view>(&load_settings),
        nb::arg("toml"), nb::arg("file") = "settings",
        "Read the text of a file, in place of the one that PLAIT_CONFIG names, and the\n"
        "environment.");
  m.def("check_environment", &check_environment,
        "Read every variable that plait reads, and refuse a bad value before ranks connect.\n\n"
        "Returns a sentence for each variable PLAIT_..., COC_... or USE_COC_... that plait does\n"
        "not read.");
  m.def("parse_settings", &parse_settings, nb::arg("toml"), nb::arg("file") = "settings",
        "Read settings from the text of a file. Refusals call it `file`.");
}

}  // namespace plait::python
