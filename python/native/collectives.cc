#include "plait/collectives.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "communicator.h"
#include "tensor.h"

namespace plait::python {
namespace {

using GivenCounts = std::optional<std::vector<std::size_t>>;

Counts counts_of(const GivenCounts& counts) { return counts ? Counts(*counts) : Counts(); }

AllToAllCounts counts_of(const GivenCounts& send, const GivenCounts& receive) {
  return {.send = counts_of(send), .receive = counts_of(receive)};
}

// A collective under way. Python's objects keep its arrays and its communicator alive.
class PyPending {
 public:
  PyPending(PyCommunicator& comm, Pending pending) : comm_(comm), pending_(std::move(pending)) {}
  PyPending(const PyPending&) = delete;
  PyPending& operator=(const PyPending&) = delete;
  ~PyPending() {
    // A communicator that has left its group has abandoned it: there is nothing to wait for.
    if (!comm_.left()) comm_.use_at_the_end([this] { pending_.reset(); });
  }

  void progress() {
    comm_.use([this](Communicator&) { pending_->progress(); });
  }
  bool done() {
    return comm_.use([this](Communicator&) { return pending_->done(); });
  }
  void wait() {
    comm_.use([this](Communicator&) { pending_->wait(); });
  }

 private:
  PyCommunicator& comm_;
  std::optional<Pending> pending_;
};

template <class Start>
std::unique_ptr<PyPending> start(PyCommunicator& comm, Start&& call) {
  return std::make_unique<PyPending>(comm, comm.use(call));
}

void bind_blocking(nb::module_& m) {
  m.def(
      "barrier", [](PyCommunicator& comm) { comm.use([](Communicator& c) { barrier(c); }); },
      nb::arg("comm"), "Returns when all ranks have called it.");
  m.def(
      "broadcast",
      [](GivenArray data, int root, PyCommunicator& comm) {
        const Elements all = elements(data, {"broadcast", "data"});
        comm.use([&](Communicator& c) { broadcast(all, root, c); });
      },
      nb::arg("data"), nb::arg("root"), nb::arg("comm"), "Copy root's elements to all ranks.");
  m.def(
      "all_gather",
      [](GivenArray mine, GivenArray all, PyCommunicator& comm, const GivenCounts& counts) {
        const ConstElements from = const_elements(mine, {"all_gather", "mine"});
        const Elements to = elements(all, {"all_gather", "all"});
        comm.use([&](Communicator& c) { all_gather(from, to, c, counts_of(counts)); });
      },
      nb::arg("mine"), nb::arg("all"), nb::arg("comm"), nb::arg("counts") = nb::none(),
      "Write the elements of all ranks, in rank order, to `all` of every rank. `counts` says how\n"
      "many each rank has; without it they are balanced.");
  m.def(
      "reduce_scatter",
      [](GivenArray all, GivenArray mine, PyCommunicator& comm, const GivenCounts& counts) {
        const ConstElements from = const_elements(all, {"reduce_scatter", "all"});
        const Elements to = elements(mine, {"reduce_scatter", "mine"});
        comm.use([&](Communicator& c) { reduce_scatter(from, to, c, counts_of(counts)); });
      },
      nb::arg("all"), nb::arg("mine"), nb::arg("comm"), nb::arg("counts") = nb::none(),
      "Sum `all` over ranks and write this rank's part of it to `mine`.");
  m.def(
      "all_reduce",
      [](GivenArray data, PyCommunicator& comm, std::optional<GivenArray> out) {
        const Elements from = elements(data, {"all_reduce", "data"});
        const Elements to = out ? elements(*out, {"all_reduce", "out"}) : from;
        comm.use([&](Communicator& c) { all_reduce(from, to, c); });
      },
      nb::arg("data"), nb::arg("comm"), nb::arg("out") = nb::none(),
      "Sum over ranks, in place or into `out`, which may be of another dtype. Every rank gets the\n"
      "same bits.");
  m.def(
      "all_to_all",
      [](GivenArray send, GivenArray receive, PyCommunicator& comm, const GivenCounts& send_counts,
         const GivenCounts& receive_counts) {
        const ConstElements from = const_elements(send, {"all_to_all", "send"});
        const Elements to = elements(receive, {"all_to_all", "receive"});
        comm.use([&](Communicator& c) {
          all_to_all(from, to, c, counts_of(send_counts, receive_counts));
        });
      },
      nb::arg("send"), nb::arg("receive"), nb::arg("comm"), nb::arg("send_counts") = nb::none(),
      nb::arg("receive_counts") = nb::none(), "Send part i of `send` to rank i.");
}

void bind_started(nb::module_& m) {
  nb::class_<PyPending>(
      m, "Pending",
      "A collective under way. Those of one communicator finish in the order in\n"
      "which they were started. It keeps its arrays alive; don't touch them until\n"
      "it is done.")
      .def("progress", &PyPending::progress, "Move what can be moved now.")
      .def("done", &PyPending::done, "Make progress, and say whether it has finished.")
      .def("wait", &PyPending::wait, "Return when it has finished.");
  m.def(
      "start_barrier",
      [](PyCommunicator& comm) {
        return start(comm, [](Communicator& c) { return start_barrier(c); });
      },
      nb::arg("comm"), nb::keep_alive<0, 1>(), "barrier(), started.");
  m.def(
      "start_broadcast",
      [](GivenArray data, int root, PyCommunicator& comm) {
        const Elements all = elements(data, {"broadcast", "data"});
        return start(comm, [&](Communicator& c) { return start_broadcast(all, root, c); });
      },
      nb::arg("data"), nb::arg("root"), nb::arg("comm"), nb::keep_alive<0, 1>(),
      nb::keep_alive<0, 3>(), "broadcast(), started.");
  m.def(
      "start_all_reduce",
      [](GivenArray data, PyCommunicator& comm, std::optional<GivenArray> out) {
        const Elements from = elements(data, {"all_reduce", "data"});
        const Elements to = out ? elements(*out, {"all_reduce", "out"}) : from;
        return start(comm, [&](Communicator& c) { return start_all_reduce(from, to, c); });
      },
      nb::arg("data"), nb::arg("comm"), nb::arg("out") = nb::none(), nb::keep_alive<0, 1>(),
      nb::keep_alive<0, 2>(), nb::keep_alive<0, 3>(), "all_reduce(), started.");
  m.def(
      "start_all_gather",
      [](GivenArray mine, GivenArray all, PyCommunicator& comm, const GivenCounts& counts) {
        const ConstElements from = const_elements(mine, {"all_gather", "mine"});
        const Elements to = elements(all, {"all_gather", "all"});
        return start(comm, [&](Communicator& c) {
          return start_all_gather(from, to, c, counts_of(counts));
        });
      },
      nb::arg("mine"), nb::arg("all"), nb::arg("comm"), nb::arg("counts") = nb::none(),
      nb::keep_alive<0, 1>(), nb::keep_alive<0, 2>(), nb::keep_alive<0, 3>(),
      "all_gather(), started.");
  m.def(
      "start_reduce_scatter",
      [](GivenArray all, GivenArray mine, PyCommunicator& comm, const GivenCounts& counts) {
        const ConstElements from = const_elements(all, {"reduce_scatter", "all"});
        const Elements to = elements(mine, {"reduce_scatter", "mine"});
        return start(comm, [&](Communicator& c) {
          return start_reduce_scatter(from, to, c, counts_of(counts));
        });
      },
      nb::arg("all"), nb::arg("mine"), nb::arg("comm"), nb::arg("counts") = nb::none(),
      nb::keep_alive<0, 1>(), nb::keep_alive<0, 2>(), nb::keep_alive<0, 3>(),
      "reduce_scatter(), started.");
  m.def(
      "start_all_to_all",
      [](GivenArray send, GivenArray receive, PyCommunicator& comm, const GivenCounts& send_counts,
         const GivenCounts& receive_counts) {
        const ConstElements from = const_elements(send, {"all_to_all", "send"});
        const Elements to = elements(receive, {"all_to_all", "receive"});
        return start(comm, [&](Communicator& c) {
          return start_all_to_all(from, to, c, counts_of(send_counts, receive_counts));
        });
      },
      nb::arg("send"), nb::arg("receive"), nb::arg("comm"), nb::arg("send_counts") = nb::none(),
      nb::arg("receive_counts") = nb::none(), nb::keep_alive<0, 1>(), nb::keep_alive<0, 2>(),
      nb::keep_alive<0, 3>(), "all_to_all(), started.");
}

// Memory by its address, for the frameworks' modules, which know dtype and layout already: half of
// what DLPack costs, and tensors that require gradients can be passed. The caller keeps it alive.
using Address = std::uintptr_t;

void* at(Address address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): what Python has
}

void bind_by_address(nb::module_& m) {
  m.def(
      "_broadcast_at",
      [](Address data, std::size_t n, Dtype dtype, int root, PyCommunicator& comm) {
        comm.use([&](Communicator& c) { broadcast({at(data), n, dtype}, root, c); });
      },
      nb::arg("data"), nb::arg("n"), nb::arg("dtype"), nb::arg("root"), nb::arg("comm"));
  m.def(
      "_all_reduce_at",
      [](Address in, Address out, std::size_t n, Dtype dtype, PyCommunicator& comm) {
        comm.use([&](Communicator& c) { all_reduce({at(in), n, dtype}, {at(out), n, dtype}, c); });
      },
      nb::arg("data"), nb::arg("out"), nb::arg("n"), nb::arg("dtype"), nb::arg("comm"));
  m.def(
      "_all_gather_at",
      [](Address mine, std::size_t n, Address all, std::size_t total, Dtype dtype,
         PyCommunicator& comm, const GivenCounts& counts) {
        comm.use([&](Communicator& c) {
          all_gather({at(mine), n, dtype}, {at(all), total, dtype}, c, counts_of(counts));
        });
      },
      nb::arg("mine"), nb::arg("n"), nb::arg("all"), nb::arg("total"), nb::arg("dtype"),
      nb::arg("comm"), nb::arg("counts") = nb::none());
  m.def(
      "_reduce_scatter_at",
      [](Address all, std::size_t total, Address mine, std::size_t n, Dtype dtype,
         PyCommunicator& comm, const GivenCounts& counts) {
        comm.use([&](Communicator& c) {
          reduce_scatter({at(all), total, dtype}, {at(mine), n, dtype}, c, counts_of(counts));
        });
      },
      nb::arg("all"), nb::arg("total"), nb::arg("mine"), nb::arg("n"), nb::arg("dtype"),
      nb::arg("comm"), nb::arg("counts") = nb::none());
  m.def(
      "_all_to_all_at",
      [](Address send, const std::vector<std::size_t>& send_counts, Address receive,
         const std::vector<std::size_t>& receive_counts, Dtype dtype, PyCommunicator& comm) {
        const auto sum = [](const std::vector<std::size_t>& counts) {
          std::size_t n = 0;
          for (const std::size_t count : counts) n += count;
          return n;
        };
        comm.use([&](Communicator& c) {
          all_to_all({at(send), sum(send_counts), dtype}, {at(receive), sum(receive_counts), dtype},
                     c, {.send = send_counts, .receive = receive_counts});
        });
      },
      nb::arg("send"), nb::arg("send_counts"), nb::arg("receive"), nb::arg("receive_counts"),
      nb::arg("dtype"), nb::arg("comm"));
}

}  // namespace

void bind_collectives(nb::module_& m) {
  nb::class_<Shard>(m, "Shard", "A rank's part of elements that ranks share evenly.")
      .def_ro("offset", &Shard::offset)
      .def_ro("count", &Shard::count);
  m.def("balanced_shard", &balanced_shard, nb::arg("elements"), nb::arg("rank"), nb::arg("world"),
        "The part of a rank: the first (elements mod world) ranks own one more.");
  bind_blocking(m);
  bind_started(m);
  bind_by_address(m);
}

}  // namespace plait::python
