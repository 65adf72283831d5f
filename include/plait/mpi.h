// The ranks of a program's own MPI communicator as a group.
//
//   MPI_Init(&argc, &argv);
//   plait::Communicator comm = plait::from_mpi(MPI_COMM_WORLD);  // or any part of it
//   plait::all_reduce({x.data(), x.size()}, comm);
//
// libplait links no MPI. This header is compiled in the program, with the program's MPI library.
#pragma once

#include <mpi.h>

#include "plait/communicator.h"
#include "plait/error.h"
#include "plait/mpi_ranks.h"

namespace plait {

// Collective over the communicator, which may have any size, and which stays the program's. Ranks
// are numbered as in it. Disjoint communicators may be connected at the same time.
//
// The ranks exchange addresses by MPI_Iallgather. After that, plait needs MPI no more: chunks go
// through shared memory within a host and over TCP between hosts, and the group may outlive
// MPI_Finalize, which plait never calls. Any level of MPI_Init_thread will do, but below
// MPI_THREAD_SERIALIZED only the thread that has started MPI may call from_mpi().
//
// With options.transport or PLAIT_TRANSPORT "mpi", chunks go through MPI too, by the plugin for the
// program's MPI library. This needs MPI_THREAD_SERIALIZED; and MPI_THREAD_MULTIPLE if the program
// calls MPI on one thread while another is in a call of plait. The group ends with MPI_Finalize:
// destroy the Communicator before.
//
// options.place and options.all_gather must be empty. If a rank doesn't come before the deadline,
// the others get Error{timeout}. They must then use the communicator for no other collective, since
// MPI can't cancel this one.
inline Communicator from_mpi(MPI_Comm comm, const CommunicatorOptions& options = {}) {
  const auto refuse_if = [](bool wrong, const char* sentence) {
    if (wrong) throw Error(Code::invalid_argument, sentence);
  };
  int yes = 0;
  MPI_Initialized(&yes);
  refuse_if(yes == 0, "from_mpi: the program has not called MPI_Init");
  MPI_Finalized(&yes);
  refuse_if(yes != 0, "from_mpi: the program has called MPI_Finalize");
  refuse_if(comm == MPI_COMM_NULL, "from_mpi: this process is in no communicator: MPI_COMM_NULL");
  int level = 0;
  MPI_Query_thread(&level);
  MPI_Is_thread_main(&yes);
  refuse_if(level < MPI_THREAD_SERIALIZED && yes == 0,
            "from_mpi: MPI was started below MPI_THREAD_SERIALIZED: only the thread that has "
            "started it may call MPI");
  MPI_Comm_test_inter(comm, &yes);
  refuse_if(yes != 0, "from_mpi: an intercommunicator has two groups; merge them before");
  MpiRanks ranks;
  MPI_Comm_rank(comm, &ranks.rank);
  MPI_Comm_size(comm, &ranks.world);
  ranks.handle = MPI_Comm_c2f(comm);
  ranks.begin_all_gather = [comm](const char* mine, char* all, int bytes) -> MpiRanks::Ended {
    MPI_Request request = MPI_REQUEST_NULL;
    // Returns only if the program has told MPI to return errors.
    const auto check = [](int result) {
      if (result != MPI_SUCCESS) throw Error(Code::system, "from_mpi: MPI can't gather addresses");
    };
    check(MPI_Iallgather(mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, comm, &request));
    return [request, check]() mutable {
      int ended = 0;
      check(MPI_Test(&request, &ended, MPI_STATUS_IGNORE));
      return ended != 0;
    };
  };
  return connect_mpi(ranks, options);
}

}  // namespace plait
