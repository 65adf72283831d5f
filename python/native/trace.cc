#include "plait/trace.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/session/timeline.h"
#include "communicator.h"
#include "plait/timeline.h"
#include "report/calls.h"
#include "report/page.h"
#include "trace/pack.h"

namespace plait::python {
namespace {

// A span that begins where `with` does and ends where its block does.
class PySpan {
 public:
  PySpan(Trace& trace, Lane lane, Label label, SpanArgs args)
      : trace_(trace), lane_(lane), label_(label), args_(args) {}

  void enter() { open_.emplace(&trace_, lane_, label_, args_); }
  void exit() { open_.reset(); }

 private:
  Trace& trace_;
  Lane lane_;
  Label label_;
  SpanArgs args_;
  std::optional<Span> open_;
};

std::unique_ptr<PySpan> span(Trace& trace, Lane lane, std::string_view label, std::int64_t bytes,
                             std::int64_t flops) {
  return std::make_unique<PySpan>(trace, lane, trace.intern(label),
                                  SpanArgs{.bytes = bytes, .flops = flops});
}

nb::bytes pack(const Trace& trace) {
  const std::vector<std::byte> packed = unlocked([&] { return trace.pack(); });
  return nb::bytes(packed.data(), packed.size());
}

using Packs = std::vector<std::vector<std::byte>>;

Packs copied(const std::vector<nb::bytes>& packs) {
  Packs all;
  for (const nb::bytes& pack : packs) {
    std::vector<std::byte>& copy = all.emplace_back(pack.size());
    if (!copy.empty()) std::memcpy(copy.data(), pack.c_str(), copy.size());
  }
  return all;
}

void write(const std::string& path, const std::vector<nb::bytes>& packs) {
  const Packs all = copied(packs);
  unlocked([&] { write_json(path, all); });
}

std::vector<nb::bytes> collect(Trace& trace, PyCommunicator& comm) {
  const Packs packs = comm.use([&](Communicator& c) { return comm::collect_packs(trace, c); });
  std::vector<nb::bytes> all;
  for (const std::vector<std::byte>& pack : packs) all.emplace_back(pack.data(), pack.size());
  return all;
}

std::string page(std::string title, std::string subtitle, const std::vector<nb::bytes>& packs) {
  const Packs all = copied(packs);
  return unlocked([&] {
    std::vector<trace::RankRecords> ranks;
    ranks.reserve(all.size());
    for (const auto& pack : all) ranks.push_back(trace::unpack(pack));
    return report::page({.title = std::move(title),
                         .subtitle = std::move(subtitle),
                         .runs = {report::run_of_calls("recorded", ranks)}});
  });
}

using Intervals = std::vector<std::pair<std::int64_t, std::int64_t>>;

std::vector<report::Calls> calls(const nb::bytes& pack, const std::optional<Intervals>& within) {
  const Packs all = copied({pack});
  std::vector<TimeInterval> intervals;
  if (within) {
    for (const auto& [begin, end] : *within) intervals.push_back({.begin = begin, .end = end});
  }
  return unlocked([&] {
    const trace::RankRecords records = trace::unpack(all.front());
    return within ? report::calls_of(records, intervals) : report::calls_of(records);
  });
}

}  // namespace

void bind_trace(nb::module_& m) {
  nb::enum_<Lane>(m, "Lane", "Each thread of a rank has one track per lane.")
      .value("compute", Lane::compute)
      .value("comm", Lane::comm)
      .value("wait", Lane::wait);
  nb::class_<PySpan>(m, "Span", "The block that `with trace.span(...)` records.")
      .def("__enter__", [](PySpan& self) { self.enter(); })
      .def(
          "__exit__", [](PySpan& self, const nb::args&) { self.exit(); },
          nb::sig("def __exit__(self, *exception: object) -> None"));
  nb::class_<Trace>(m, "Trace", nb::is_weak_referenceable(),
                    "The records of one rank: what it did, and when, written as a timeline that\n"
                    "Perfetto (ui.perfetto.dev) opens.")
      .def(nb::init<int, std::size_t>(), nb::arg("rank"),
           nb::arg("capacity_per_thread") = Trace::kDefaultCapacity)
      .def_prop_ro("rank", &Trace::rank)
      .def("span", &span, nb::arg("lane"), nb::arg("label"), nb::kw_only(), nb::arg("bytes") = -1,
           nb::arg("flops") = -1, nb::keep_alive<0, 1>(),
           "Record a `with` block, from its beginning to its end.")
      .def(
          "mark",
          [](Trace& trace, Lane lane, std::string_view label) {
            trace.mark(lane, trace.intern(label));
          },
          nb::arg("lane"), nb::arg("label"), "Record a moment.")
      .def(
          "count",
          [](Trace& trace, std::string_view label, std::int64_t value) {
            trace.count(trace.intern(label), value);
          },
          nb::arg("label"), nb::arg("value"), "Record a value from now on.")
      .def_prop_ro("dropped", &Trace::dropped, "How many records were lost so far.")
      .def("pack", &pack, "All records as bytes, for the rank that writes the timeline.")
      .def(
          "write_json",
          [](const Trace& trace, const std::string& path) {
            unlocked([&] { trace.write_json(path); });
          },
          nb::arg("path"), "Write this rank's timeline alone.");
  nb::class_<report::Calls>(m, "TraceCalls",
                            "All calls of one problem on one rank; times in nanoseconds.")
      .def_ro("problem", &report::Calls::problem)
      .def_ro("count", &report::Calls::count)
      .def_ro("time", &report::Calls::time)
      .def_ro("multiplying", &report::Calls::multiplying)
      .def_ro("communicating", &report::Calls::communicating)
      .def_ro("waiting", &report::Calls::waiting)
      .def_ro("communication", &report::Calls::communication,
              "Chunks travel, or the rank copies, sums or waits.")
      .def_ro("hidden", &report::Calls::hidden,
              "The part of it in which the rank multiplies as well.");
  m.def("timeline_page", &page, nb::arg("title"), nb::arg("subtitle"), nb::arg("packs"),
        "The packs of any number of ranks as a page of HTML that needs nothing else.");
  m.def("calls_in_pack", &calls, nb::arg("pack"), nb::arg("within") = nb::none(),
        "The calls of operators, and their use of time. `within`: only calls in one of these\n"
        "intervals, in nanoseconds of time.monotonic_ns(), which are disjoint and sorted.");
  m.def("write_json", &write, nb::arg("path"), nb::arg("packs"),
        "Write the packs of any number of ranks as one timeline.");
}

// After Communicator, which its signature names.
void bind_timeline(nb::module_& m) {
  m.def("collect_packs", &collect, nb::arg("trace"), nb::arg("comm"),
        "Collective. Align the clocks; rank 0 gets every rank's pack, the others none.");
  m.def(
      "write_timeline",
      [](const std::string& path, Trace& trace, PyCommunicator& comm) {
        comm.use([&](Communicator& c) { write_timeline(path, trace, c); });
      },
      nb::arg("path"), nb::arg("trace"), nb::arg("comm"),
      "Collective. Align the clocks; rank 0 writes what all ranks recorded.");
  m.def(
      "align_clock",
      [](Trace& trace, PyCommunicator& comm) {
        comm.use([&](Communicator& c) { align_clock(trace, c); });
      },
      nb::arg("trace"), nb::arg("comm"),
      "Collective. Measure the offset of rank 0's clock. Before long work on several hosts: their\n"
      "clocks drift apart.");
}

}  // namespace plait::python
