// All processes, from the moment that MPI is started till it ends: where communicators come from.
#pragma once

#include <memory>

#include "comm/mpi/plugin/mpi_transport.h"

namespace plait::comm::mpi {

class Lobby {
 public:
  Lobby();

  // Collective over all processes. One that fails ends the lobby: nobody could tell any more who
  // meets whom.
  std::unique_ptr<Transport> connect(const WaitPolicy& policy);

 private:
  std::unique_ptr<Transport> meet(WaitPolicy policy);

  MpiTransport transport_;
  std::shared_ptr<const Neighbours> neighbours_;
};

}  // namespace plait::comm::mpi
