#include "plans.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>

#include "communicator.h"
#include "plait/tune.h"

namespace plait::python {

RecordedPlans::RecordedPlans(const Settings& settings, const PlanSource* further)
    : plans_(settings, further == nullptr ? std::vector<const PlanSource*>{}
                                          : std::vector<const PlanSource*>{further}) {}

void RecordedPlans::took(const PlanKey& key, const Plan& plan, std::int64_t nanoseconds) const {
  plans_.took(key, plan, nanoseconds);
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(rows_.begin(), rows_.end(), [&](const Row& row) {
    return row.key == key && row.plan == plan;
  });
  if (found == rows_.end()) {
    rows_.push_back(
        {.key = key, .plan = plan, .calls = 1, .nanoseconds = nanoseconds, .first = nanoseconds});
    return renew_reasons(key);
  }
  ++found->calls;
  found->nanoseconds += nanoseconds;
  // The source learns from calls. It must not be asked when rows are: that is another thread's. On
  // one host a call may be shorter than ten of these questions.
  if (key.hosts > 1 || std::has_single_bit(static_cast<std::uint64_t>(found->calls)))
    renew_reasons(key);
}

// A reason that was measured is that of one plan.
void RecordedPlans::renew_reasons(const PlanKey& key) const {
  const std::optional<PlanReason> reason = plans_.reason(key);
  const std::optional<Plan> chosen = plans_.find(key);
  for (Row& row : rows_) {
    if (row.key != key) continue;
    row.reason = reason;
    row.is_in_use = !chosen || row.plan == followed_by(key.op, *chosen);
    if (reason && reason->is_measured && !row.is_in_use) row.reason->sentence = "was tried";
  }
}

std::vector<RecordedPlans::Row> RecordedPlans::rows() const {
  const std::lock_guard lock(mutex_);
  return rows_;
}

void RecordedPlans::forget() {
  const std::lock_guard lock(mutex_);
  rows_.clear();
}

void bind_plans(nb::module_& m) {
  const nb::class_<PlanSource> source(m, "PlanSource",
                                      "Gives the plan of a problem, the same on every rank.");
  m.def(
      "automatic_plans",
      [](PyCommunicator& comm, std::optional<std::string> cache, std::optional<bool> online) {
        return comm.use([&](Communicator& c) {
          return automatic_plans(c, {.cache = std::move(cache), .online = online});
        });
      },
      nb::arg("comm"), nb::kw_only(), nb::arg("cache") = nb::none(), nb::arg("online") = nb::none(),
      nb::keep_alive<0, 1>(),
      "Plans that were measured on this machine, or else chosen by the cost model. Collective.");
  nb::class_<PlanReason>(m, "PlanReason", "The reason for the plan of a problem.")
      .def_ro("sentence", &PlanReason::sentence)
      .def_ro("serial_ns", &PlanReason::serial_ns,
              "The time of a serial call, measured or predicted; 0: unknown.")
      .def_ro("transfer_ns", &PlanReason::transfer_ns, "How long the link is busy, as predicted.");
  nb::class_<RecordedPlans::Row>(m, "PlanRow", "Calls of one problem in one plan.")
      .def_prop_ro("op", [](const RecordedPlans::Row& row) { return row.key.op; })
      .def_prop_ro("m", [](const RecordedPlans::Row& row) { return row.key.m; })
      .def_prop_ro("n", [](const RecordedPlans::Row& row) { return row.key.n; })
      .def_prop_ro("k", [](const RecordedPlans::Row& row) { return row.key.k; })
      .def_prop_ro("dtype", [](const RecordedPlans::Row& row) { return row.key.x; })
      .def_prop_ro("wire", [](const RecordedPlans::Row& row) { return row.key.wire; })
      .def_prop_ro("problem", [](const RecordedPlans::Row& row) { return name(row.key); })
      .def_ro("plan", &RecordedPlans::Row::plan)
      .def_ro("calls", &RecordedPlans::Row::calls)
      .def_prop_ro("hosts", [](const RecordedPlans::Row& row) { return row.key.hosts; })
      .def_ro("nanoseconds", &RecordedPlans::Row::nanoseconds)
      .def_ro("first", &RecordedPlans::Row::first, "Nanoseconds of the first call.")
      .def_ro("reason", &RecordedPlans::Row::reason, "Why these calls have this plan.")
      .def_ro("is_in_use", &RecordedPlans::Row::is_in_use,
              "The next call has this plan too, as far as is known.");
  nb::class_<RecordedPlans, PlanSource>(m, "RecordedPlans",
                                        "The plans that settings name, then those of `further`; "
                                        "counts the calls that ask.")
      .def(nb::init<const Settings&, const PlanSource*>(), nb::arg("settings"),
           nb::arg("further") = nb::none(), nb::keep_alive<1, 3>())
      .def("rows", &RecordedPlans::rows)
      .def("forget", &RecordedPlans::forget);
}

}  // namespace plait::python
