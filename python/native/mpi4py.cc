#include "mpi4py.h"

#include <cstdint>

#include "communicator.h"

namespace plait::python {
namespace {

// Memory that MPI reads, or writes where it is not `read_only`, until an all-gather has ended.
nb::object memory(const nb::object& mpi, const char* begin, int bytes, bool read_only) {
  return mpi.attr("buffer").attr("fromaddress")(reinterpret_cast<std::uintptr_t>(begin), bytes,
                                                read_only);
}

void check(const nb::object& mpi, const nb::object& comm) {
  const auto says = [](const nb::object& of, const char* question) {
    return nb::cast<bool>(of.attr(question)());
  };
  const auto refuse_if = [](bool wrong, const char* sentence) {
    if (wrong) throw Error(Code::invalid_argument, sentence);
  };
  refuse_if(!nb::hasattr(mpi, "buffer"), "from_mpi: it needs mpi4py 4 or newer");
  refuse_if(!says(mpi, "Is_initialized"), "from_mpi: the program has not called MPI.Init()");
  refuse_if(says(mpi, "Is_finalized"), "from_mpi: the program has called MPI.Finalize()");
  refuse_if(comm.equal(mpi.attr("COMM_NULL")),
            "from_mpi: this process is in no communicator: MPI.COMM_NULL");
  const int level = nb::cast<int>(mpi.attr("Query_thread")());
  refuse_if(
      level < nb::cast<int>(mpi.attr("THREAD_SERIALIZED")) && !says(mpi, "Is_thread_main"),
      "from_mpi: MPI was started below MPI.THREAD_SERIALIZED: only the thread that has started it "
      "may call MPI");
  refuse_if(says(comm, "Is_inter"),
            "from_mpi: an intercommunicator has two groups; merge them before");
}

}  // namespace

MpiRanks mpi_ranks(nb::object comm) {
  const nb::object mpi = nb::module_::import_("mpi4py.MPI");
  if (comm.is_none()) comm = mpi.attr("COMM_WORLD");
  if (!nb::isinstance(comm, mpi.attr("Comm")))
    nb::raise_type_error("from_mpi: comm is no communicator of mpi4py");
  check(mpi, comm);
  const int world = nb::cast<int>(comm.attr("Get_size")());
  const auto begin = [mpi = shared(mpi), comm = shared(comm), world](const char* mine, char* all,
                                                                     int bytes) -> MpiRanks::Ended {
    const nb::gil_scoped_acquire gil;
    const auto request = shared(comm->attr("Iallgather")(memory(*mpi, mine, bytes, true),
                                                         memory(*mpi, all, bytes * world, false)));
    return [request] {
      const nb::gil_scoped_acquire held;
      return nb::cast<bool>(request->attr("Test")());
    };
  };
  return {.rank = nb::cast<int>(comm.attr("Get_rank")()),
          .world = world,
          .handle = nb::cast<int>(comm.attr("py2f")()),
          .begin_all_gather = begin};
}

}  // namespace plait::python
