#include "plait/plan.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <string>

#include "named.h"
#include "native.h"

namespace plait::python {
namespace {

void bind_enums(nb::module_& m) {
  nb::enum_<Operator> op(m, "Operator", "A product with the collective that needs it or makes it.");
  for (int i = 0; i < kOperators; ++i)
    op.value(std::string(kOperatorTraits[i].name).c_str(), static_cast<Operator>(i));
  nb::enum_<Schedule>(m, "Schedule", "How a product and its communication interleave.")
      .value("serial", Schedule::serial)
      .value("pipelined", Schedule::pipelined)
      .value("fused", Schedule::fused);
  nb::enum_<Axis>(m, "Axis", "Along what a product is cut.")
      .value("natural", Axis::natural)
      .value("rows", Axis::rows)
      .value("columns", Axis::columns);
  nb::class_<OperatorTraits>(m, "OperatorTraits",
                             "The properties of an operator: what it moves, adds up and shares.")
      .def_ro("name", &OperatorTraits::name)
      .def_ro("compute_first", &OperatorTraits::compute_first,
              "The collective moves the product's result, not its operand.")
      .def_ro("reduces", &OperatorTraits::reduces)
      .def_ro("gathers", &OperatorTraits::gathers)
      .def_ro("shares_n", &OperatorTraits::shares_n,
              "Each rank's weight has a share of n, which may differ.")
      .def_ro("shares_k", &OperatorTraits::shares_k,
              "Each rank's weight has a share of k, which may differ; products are partial\n"
              "sums.")
      .def_ro("is_fused", &OperatorTraits::is_fused, "There is a fused schedule.");
  m.def(
      "traits_of", [](Named<Operator> op) -> const OperatorTraits& { return traits_of(op); },
      nb::arg("op"), nb::rv_policy::reference, "The properties of an operator.");
}

}  // namespace

void bind_plan(nb::module_& m) {
  bind_enums(m);
  nb::class_<Plan>(m, "Plan",
                   "How an operator's product and its communication interleave: Plan(\"fused\"),\n"
                   "Plan(\"pipelined parts=8 axis=columns\"). It changes the time, never a bit.")
      .def(
          "__init__", [](Plan* self, std::string_view text) { new (self) Plan(parse_plan(text)); },
          nb::arg("text"))
      .def_ro("schedule", &Plan::schedule)
      .def_ro("parts", &Plan::parts)
      .def_ro("axis", &Plan::axis)
      .def_ro("first", &Plan::first)
      .def_ro("last", &Plan::last)
      .def_ro("chunk", &Plan::chunk)
      .def_ro("poll", &Plan::poll)
      .def("__str__", [](const Plan& plan) { return name(plan); })
      .def("__repr__", [](const Plan& plan) { return "Plan(\"" + name(plan) + "\")"; })
      .def(
          "__eq__", [](const Plan& a, const Plan& b) { return a == b; }, nb::is_operator(),
          nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const Plan& plan) { return fingerprint(plan); });
  m.def(
      "default_plan", [](Named<Operator> op) { return default_plan(op); }, nb::arg("op"),
      "The plan that is taken where no other is named.");
  m.def(
      "followed_by", [](Named<Operator> op, Named<Plan> plan) { return followed_by(op, plan); },
      nb::arg("op"), nb::arg("plan"), "The plan, or the nearest that the operator can follow.");
}

}  // namespace plait::python
