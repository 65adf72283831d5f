#include "communicator.h"

#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <exception>
#include <set>
#include <string>
#include <variant>

#include "mpi4py.h"
#include "plait/trace.h"

namespace plait::python {
namespace {

using Owned = std::unique_ptr<PyCommunicator>;

// Those that have not left, for the end of the program. Guarded by the GIL.
std::set<PyCommunicator*>& living() {
  static std::set<PyCommunicator*> communicators;
  return communicators;
}

// Asked by the rendezvous, which runs without the GIL.
AllGatherBytes asks(nb::object function) {
  return [function = shared(std::move(function))](const std::string& mine) {
    const nb::gil_scoped_acquire gil;
    const nb::object all = (*function)(nb::bytes(mine.data(), mine.size()));
    std::vector<std::string> parts;
    for (const nb::handle part : all) {
      nb::bytes bytes;
      if (!nb::try_cast(part, bytes)) {
        throw Error(Code::invalid_argument, "connect: all_gather returned an object of type " +
                                                nb::cast<std::string>(nb::type_name(part.type())) +
                                                ", not bytes");
      }
      parts.emplace_back(bytes.c_str(), bytes.size());
    }
    return parts;
  };
}

std::chrono::nanoseconds nanoseconds(double seconds) {
  if (!(seconds > 0) || seconds > 1e9)
    throw Error(Code::invalid_argument, "the timeout is " + std::to_string(seconds) +
                                            " seconds; it must be more than 0 and finite");
  return std::chrono::nanoseconds(std::llround(seconds * 1e9));
}

using AnyLink = std::variant<Link, std::string>;

Link read(const AnyLink& link) {
  if (const auto* text = std::get_if<std::string>(&link)) return parse_link(*text);
  return std::get<Link>(link);
}

// Ctrl-C ends a wait. Python handles signals in its main thread alone.
void check_signals() {
  if (::gettid() != ::getpid()) return;
  const nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

struct Options {
  const std::string& transport;
  const std::optional<Place>& place;
  const std::optional<nb::object>& all_gather;
  const std::optional<AnyLink>& link;
  std::optional<double> timeout;
  Trace* trace;
};

CommunicatorOptions read(const Options& given) {
  CommunicatorOptions options{.transport = given.transport,
                              .place = given.place,
                              .interrupted = check_signals,
                              .trace = given.trace};
  if (given.all_gather) options.all_gather = asks(*given.all_gather);
  if (given.link) options.link = read(*given.link);
  if (given.timeout) options.timeout = nanoseconds(*given.timeout);
  return options;
}

Owned own(std::optional<Communicator> comm) {
  return comm ? std::make_unique<PyCommunicator>(std::move(*comm)) : nullptr;
}

Owned connect(const std::string& transport, const std::optional<Place>& place,
              const std::optional<nb::object>& all_gather, const std::optional<AnyLink>& link,
              std::optional<double> timeout, Trace* trace) {
  const CommunicatorOptions options = read({transport, place, all_gather, link, timeout, trace});
  return own(unlocked([&] { return std::optional(Communicator::connect(options)); }));
}

Owned from_mpi(nb::object comm, const std::string& transport, const std::optional<AnyLink>& link,
               std::optional<double> timeout, Trace* trace) {
  const CommunicatorOptions options =
      read({transport, std::nullopt, std::nullopt, link, timeout, trace});
  const MpiRanks ranks = mpi_ranks(std::move(comm));
  return own(unlocked([&] { return std::optional(connect_mpi(ranks, options)); }));
}

// survivors() as Python gets it.
struct PySurvivors {
  nb::object comm;
  std::vector<int> lost;
  std::uint64_t completed_calls;
};

PySurvivors survivors(PyCommunicator& self) {
  auto [comm, lost, completed_calls] = self.use([](Communicator& old) { return old.survivors(); });
  Owned left = own(std::optional(std::move(comm)));
  left->keep_trace_of(self);
  return {.comm = nb::cast(std::move(left)),
          .lost = std::move(lost),
          .completed_calls = completed_calls};
}

void bind_survivors(nb::module_& m) {
  nb::class_<PySurvivors>(m, "Survivors", "The outcome of Communicator.survivors().")
      .def_prop_ro(
          "comm", [](const PySurvivors& self) { return self.comm; },
          nb::sig("def comm(self) -> Communicator"), "The survivors, in their old order.")
      .def_ro("lost", &PySurvivors::lost, "The other ranks, as the old group has numbered them.")
      .def_ro("completed_calls", &PySurvivors::completed_calls,
              "Calls of the old group that have ended on every survivor: repeat those after them.");
}

Owned join(const ThreadGroup& group, int rank, std::optional<double> timeout, Trace* trace) {
  CommunicatorOptions options{.interrupted = check_signals, .trace = trace};
  if (timeout) options.timeout = nanoseconds(*timeout);
  return own(unlocked([&] { return std::optional(group.join(rank, options)); }));
}

void leave_every_group() {
  while (!living().empty()) {
    // Another thread may drop its last reference meanwhile.
    const nb::object held = nb::find(*living().begin());
    nb::cast<PyCommunicator&>(held).leave();
  }
}

// For the end of the program, which other ranks are told of.
void leave_at_the_end() {
  leave_every_group();
  end_of_python();
}

}  // namespace

PyCommunicator::PyCommunicator(Communicator comm)
    : comm_(std::make_unique<Communicator>(std::move(comm))) {
  living().insert(this);
}

PyCommunicator::~PyCommunicator() {
  try {
    leave();
  } catch (const std::exception&) {
    living().erase(this);  // a signal's handler destroys it amid a call of this thread
  }
}

void Turns::take() {
  constexpr std::chrono::milliseconds kBetweenQuestions{10};
  if (is_mine())
    throw Error(
        Code::invalid_argument,
        "this thread is in a call of this communicator already: a handler of a signal can't "
        "use or leave it; let the handler raise, which ends the call");
  while (!mutex_.try_lock_for(kBetweenQuestions)) check_signals();
  owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
}

void Turns::take_without_signals() {
  mutex_.lock();
  owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
}

bool Turns::try_take() {
  if (!mutex_.try_lock()) return false;
  owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  return true;
}

void Turns::give() {
  owner_.store(std::thread::id(), std::memory_order_relaxed);
  mutex_.unlock();
}

// True if this thread has taken a turn that it must give back.
bool PyCommunicator::begin_the_end() noexcept {
  if (!turns_.is_mine()) {
    try {
      turns_.take();
      return true;
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): as in all destructors
    }
  }
  try {
    const nb::gil_scoped_acquire gil;
    if (!is_leaving_)
      comm_->abort("a signal's handler has interrupted what destroys a collective under way");
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): as in all destructors
  }
  if (turns_.is_mine()) return false;
  turns_.take_without_signals();
  return true;
}

Communicator& PyCommunicator::get() const {
  if (comm_ == nullptr)
    throw Error(Code::invalid_argument, "this communicator has been left, and is of no use");
  return *comm_;
}

void PyCommunicator::leave() {
  if (is_leaving_) return;
  if (turns_.is_mine()) turns_.take();  // says why not
  is_leaving_ = true;
  living().erase(this);
  unlocked([this] {
    if (!turns_.try_take()) {
      comm_->abort("a rank leaves while one of its threads is in a call");
      turns_.take_without_signals();
    }
    aborting_.lock();
  });
  // With the GIL: threads that have it call get() without a turn.
  std::unique_ptr<Communicator> left = std::move(comm_);
  unlocked([&] {
    left.reset();
    aborting_.unlock();
    turns_.give();
  });
}

void PyCommunicator::abort(std::string_view reason) {
  get();
  unlocked([&] {
    const std::scoped_lock lock(aborting_);
    if (comm_ != nullptr) comm_->abort(reason);
  });
}

void PyCommunicator::set_trace(nb::object trace) {
  Trace* records = trace.is_none() ? nullptr : nb::cast<Trace*>(trace);
  use([&](Communicator& comm) { comm.set_trace(records); });
  trace_ = std::move(trace);
}

void bind_communicator(nb::module_& m) {
  bind_survivors(m);
  nb::class_<PyCommunicator>(
      m, "Communicator", nb::is_weak_referenceable(),
      "A group of ranks, seen from one of them.\n\n"
      "All its ranks make the same calls in the same order. When a rank dies, leaves, disagrees "
      "or\n"
      "lets the deadline pass, every other rank gets the same Error, and the communicator is of "
      "no\n"
      "use after that. With `with`, the rank leaves at the end of the block.")
      .def_static(
          "connect", &connect, nb::kw_only(), nb::arg("transport") = "",
          nb::arg("place") = nb::none(), nb::arg("all_gather") = nb::none(),
          nb::arg("link") = nb::none(), nb::arg("timeout") = nb::none(),
          nb::arg("trace").none() = nb::none(), nb::keep_alive<0, 6>(),
          nb::sig("def connect(*, transport: str = '', place: Place | None = None, "
                  "all_gather: collections.abc.Callable[[bytes], "
                  "collections.abc.Sequence[bytes]] | None = None, "
                  "link: Link | str | None = None, timeout: float | None = None, "
                  "trace: Trace | None = None) -> Communicator"),
          "Collective: returns when all ranks of the place's world have called it.\n\n"
          "Without a place it is the one that plait run, torchrun, mpirun or srun left in\n"
          "the environment. `all_gather` lends a framework's store to the rendezvous: it\n"
          "takes this rank's bytes and returns those of all ranks. `timeout` is in seconds.")
      .def_static(
          "from_mpi", &from_mpi, nb::arg("comm") = nb::none(), nb::kw_only(),
          nb::arg("transport") = "", nb::arg("link") = nb::none(), nb::arg("timeout") = nb::none(),
          nb::arg("trace").none() = nb::none(), nb::keep_alive<0, 5>(),
          nb::sig("def from_mpi(comm: object | None = None, *, transport: str = '', "
                  "link: Link | str | None = None, timeout: float | None = None, "
                  "trace: Trace | None = None) -> Communicator"),
          "Collective over a communicator of mpi4py, whose ranks keep their numbers.\n\n"
          "Without one it is MPI.COMM_WORLD. The ranks exchange their addresses through MPI, and\n"
          "then use shared memory and TCP without it; with the transport \"mpi\", chunks go\n"
          "through MPI too, until the program calls MPI.Finalize(). It needs mpi4py 4, which is\n"
          "imported by the call. If a rank doesn't come before the deadline, the others get an\n"
          "Error and must use `comm` for no other collective.")
      .def_prop_ro("has_left", &PyCommunicator::left)
      .def_prop_ro("rank", [](const PyCommunicator& self) { return self.get().rank(); })
      .def_prop_ro("world", [](const PyCommunicator& self) { return self.get().world(); })
      .def_prop_ro("hosts", [](const PyCommunicator& self) { return self.get().hosts(); })
      .def_prop_ro("transport", [](const PyCommunicator& self) { return self.get().transport(); })
      .def_prop_ro("link", [](const PyCommunicator& self) { return self.get().link(); })
      .def_prop_ro(
          "mailbox_bytes", [](const PyCommunicator& self) { return self.get().mailbox_bytes(); },
          "Bytes of this rank's memory that its mailboxes hold.")
      .def(
          "split",
          [](PyCommunicator& self, int color, int key) {
            Owned part = own(self.use([&](Communicator& comm) { return comm.split(color, key); }));
            if (part != nullptr) part->keep_trace_of(self);
            return part;
          },
          nb::arg("color"), nb::arg("key"), nb::keep_alive<0, 1>(),
          nb::sig("def split(self, color: int, key: int) -> Communicator | None"),
          "Collective. Ranks with the same color form a group, ordered by key, then by rank here.\n"
          "A negative color joins none.")
      .def(
          "with_link",
          [](PyCommunicator& self, const std::optional<AnyLink>& link) {
            std::optional<Link> over;
            if (link) over = read(*link);
            Owned linked = own(
                self.use([&](Communicator& comm) { return std::optional(comm.with_link(over)); }));
            linked->keep_trace_of(self);
            return linked;
          },
          nb::arg("link").none(), nb::keep_alive<0, 1>(),
          nb::sig("def with_link(self, link: Link | str | None) -> Communicator"),
          "Collective. The same ranks as a group of their own, over this emulated link.")
      .def(
          "check_ranks",
          [](PyCommunicator& self) { self.use([](Communicator& comm) { comm.check_ranks(); }); },
          "Not collective: raise Error where a rank of the group has died, or the group has ended.")
      .def("survivors", &survivors, nb::sig("def survivors(self) -> Survivors"),
           "Go on without lost ranks, after an error has ended the group.\n\n"
           "Every rank that is left calls it, and all get the same answer: a new communicator,\n"
           "the lost ranks, and how many calls have ended on every survivor. A rank that has not\n"
           "called it by the deadline counts as lost. Over TCP, ranks that may be alive beyond a\n"
           "broken cable must be fewer than those that go on; most MPI launchers end all.")
      .def_prop_ro(
          "completed_calls",
          [](const PyCommunicator& self) { return self.get().completed_calls(); },
          "How many calls of collectives and operators have ended here. All ranks make the same\n"
          "calls, so it means the same on all of them.")
      .def("abort", &PyCommunicator::abort, nb::arg("reason"),
           "End the group, and all that were split off it. Any thread may call it at any time.")
      .def("set_trace", &PyCommunicator::set_trace, nb::arg("trace").none(),
           nb::sig("def set_trace(self, trace: Trace | None) -> None"),
           "Record into this trace from the next call on, or into none. Not collective.")
      .def_prop_ro("trace", &PyCommunicator::trace, nb::sig("def trace(self) -> Trace | None"),
                   "The trace that set_trace() was given last.")
      .def("leave", &PyCommunicator::leave,
           "Leave the group. Calling it again does nothing; using the communicator is an error.")
      .def(
          "__enter__", [](nb::handle self) { return nb::borrow(self); },
          nb::sig("def __enter__(self) -> Communicator"))
      .def(
          "__exit__", [](PyCommunicator& self, const nb::args&) { self.leave(); },
          nb::sig("def __exit__(self, *exception: object) -> None"))
      .def("__repr__", [](const PyCommunicator& self) -> std::string {
        if (self.left()) return "<plait.Communicator, left>";
        const Communicator& comm = self.get();
        return "<plait.Communicator, rank " + std::to_string(comm.rank()) + " of " +
               std::to_string(comm.world()) + " over " + std::string(comm.transport()) + ">";
      });

  nb::class_<ThreadGroup>(
      m, "ThreadGroup", "Ranks that are threads of this process: each thread joins with its rank.")
      .def(nb::init<int>(), nb::arg("world"))
      .def("join", &join, nb::arg("rank"), nb::kw_only(), nb::arg("timeout") = nb::none(),
           nb::arg("trace").none() = nb::none(), nb::keep_alive<0, 1>(), nb::keep_alive<0, 4>(),
           nb::sig("def join(self, rank: int, *, timeout: float | None = None, "
                   "trace: Trace | None = None) -> Communicator"),
           "Returns when all threads have joined.");

  m.def(
      "leave_all", &leave_every_group,
      "Leave the groups of all communicators, which are of no use afterwards: for processes that\n"
      "end by os._exit(), which runs nothing. Other ends of a program do it by themselves.");
  m.def("_leave_at_the_end", &leave_at_the_end,
        "Leave every group, and keep other threads out of Python from now on.");
}

}  // namespace plait::python
