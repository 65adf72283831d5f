#include "plait/all_to_all_rows.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "communicator.h"
#include "views.h"

namespace plait::python {

void bind_all_to_all_rows(nb::module_& m) {
  constexpr const char* kName = "all_to_all_rows";
  nb::class_<ReceivedRows>(m, "ReceivedRows", "The rows that all_to_all_rows() has received.")
      .def_prop_ro(
          "rows",
          [](nb::handle_t<ReceivedRows> self) {
            return array_of(nb::cast<const ReceivedRows&>(self).rows, self);
          },
          "The rows, for from_dlpack() or a product; no copy.")
      .def_ro("groups", &ReceivedRows::groups)
      .def_ro("counts", &ReceivedRows::counts,
              "How many rows have come from each rank for each group, rank by rank.")
      .def("rows_of_groups", &ReceivedRows::rows_of_groups, "How many rows each group has.");
  m.def(
      kName,
      [](nb::handle x, const std::vector<std::int64_t>& counts, PyCommunicator& comm,
         std::int64_t groups, bool back, std::optional<std::int64_t> most_rows) {
        const ConstTensorView rows = const_view_of(x, {kName, "x"});
        RowsOptions options = {.groups = groups, .back = back};
        if (most_rows) options.most_rows = *most_rows;
        auto received = std::make_unique<ReceivedRows>();
        comm.use([&](Communicator& c) { all_to_all_rows(rows, counts, *received, c, options); });
        return received;
      },
      nb::arg("x"), nb::arg("counts"), nb::arg("comm"), nb::kw_only(), nb::arg("groups") = 1,
      nb::arg("back") = false, nb::arg("most_rows") = nb::none(),
      nb::sig("def all_to_all_rows(x: Array | TensorView, counts: collections.abc.Sequence[int], "
              "comm: Communicator, *, groups: int = 1, back: bool = False, "
              "most_rows: int | None = None) -> ReceivedRows"),
      "Send rows to groups of other ranks, which need not know how many come.\n\n"
      "`counts[rank * groups + group]` of x's rows are for a group of a rank, in this order.\n"
      "They are received group by group, each group's by their sources. With `back`, x is in the\n"
      "order in which rows were received, and what comes back in that of the first x. More than\n"
      "`most_rows` for this rank are refused on all ranks.");
}

}  // namespace plait::python
