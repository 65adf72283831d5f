// Reads from UCX's output how it reaches a peer. Its functions don't tell, but it prints a line for
// each lane:
//
//   lane[1]:  5:rc_mlx5/mlx5_0:1.0 md[3]   -> md[3]/ib/sysdev[0] rma_bw#0 am am_bw#0
#pragma once

#include <string>
#include <string_view>

namespace plait::comm::ucx {

struct Lanes {
  bool has_only_tcp = false;  // and there is one
  std::string movers = {};    // the movers of large chunks, for people: "rc_mlx5/mlx5_0:1"
  bool can_fetch = false;     // the receiver of a large chunk reads it from the sender's memory
};

Lanes read_lanes(std::string_view printed);

}  // namespace plait::comm::ucx
