#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "comm/mpi/plugin/library_settings.h"

namespace plait::comm::mpi {
namespace {

// InfiniBand and RoCE cards, as the kernel lists them.
bool has_rdma_card() {
  std::error_code missing;
  const std::filesystem::directory_iterator cards("/sys/class/infiniband", missing);
  return !missing && cards != std::filesystem::directory_iterator();
}

}  // namespace

// By default MPICH's UCX asks the receiver of a large message first, and then puts the message into
// its memory. Over TCP the link then carries little more than half of what it could both ways. UCX
// has one threshold for all networks, and this way is the best one for RDMA, so it is left where
// there is a card for that.
void apply_library_settings() {
  if (!has_rdma_card()) ::setenv("UCX_RNDV_THRESH", "inf", 0);
}

}  // namespace plait::comm::mpi
