// The place of a rank, and the link that its chunks use. Communicator.connect() takes both.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <string>
#include <utility>

#include "native.h"
#include "plait/communicator.h"
#include "plait/link.h"

namespace plait::python {

void bind_place(nb::module_& m) {
  nb::class_<Place>(m, "Place", "The place of a rank among the others.")
      .def(
          "__init__",
          [](Place* self, int rank, int world, std::string job, std::string launcher, int hosts,
             int local_rank, std::string host) {
            new (self) Place{rank,  world,      std::move(job), std::move(launcher),
                             hosts, local_rank, std::move(host)};
          },
          nb::arg("rank"), nb::arg("world"), nb::arg("job") = "", nb::arg("launcher") = "",
          nb::arg("hosts") = 1, nb::arg("local_rank") = 0, nb::arg("host") = "",
          "`host` names the rank's host if one machine simulates several.")
      .def_ro("rank", &Place::rank)
      .def_ro("world", &Place::world)
      .def_ro("job", &Place::job)
      .def_ro("launcher", &Place::launcher)
      .def_ro("hosts", &Place::hosts)
      .def_ro("local_rank", &Place::local_rank)
      .def_ro("host", &Place::host);
  m.def("place_from_environment", &place_from_environment,
        "The place that plait run, torchrun, Open MPI or Slurm left in the environment; one rank "
        "alone where there is none.");
}

void bind_link(nb::module_& m) {
  nb::class_<Link>(m, "Link", "A link that does not exist: chunks arrive when they would have.")
      .def_ro("bytes_per_second", &Link::bytes_per_second)
      .def_ro("latency_ns", &Link::latency_ns)
      .def("__str__", [](const Link& link) { return name(link); })
      .def("__repr__", [](const Link& link) { return "parse_link('" + name(link) + "')"; })
      .def(
          "__eq__", [](const Link& a, const Link& b) { return a == b; }, nb::is_operator(),
          nb::sig("def __eq__(self, other: object, /) -> bool"));
  m.def("parse_link", &parse_link, nb::arg("text"), R"(Read a link: "25gbit,5us", "3GB/s".)");
}

}  // namespace plait::python
