// All ranks of a job must use the same transport. Ranks that use different ones would wait for each
// other at different places until their deadlines. How they find out instead:
//
// - where the caller lends an all-gather, each transport's first text is sent with its name;
// - over TCP, a rank's first words contain it (meet/handshake.h);
// - otherwise a rank that doesn't use shared memory goes to where the ranks of shared memory meet,
//   and says what it uses (meet/transport_check.h);
// - and a rank that uses mpi goes to where the ranks that use tcp meet, if a variable says where
//   (meet/rendezvous_check.h).
#pragma once

#include <string>

#include "plait/communicator.h"

namespace plait::comm {

// Wraps an all-gather. Each call refuses another number of texts than there are ranks. The first,
// which all transports make, refuses ranks of which one uses another transport.
AllGatherBytes with_transport_check(AllGatherBytes all_gather, std::string transport, int world);

}  // namespace plait::comm
