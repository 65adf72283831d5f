// Ranks 0 and 1 send chunks to each other, and record when each was posted and had arrived. Each
// says what its own clock showed at one recorded moment.
//
//   clock_program FILE
#include <chrono>
#include <iostream>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "plait/communicator.h"
#include "plait/mailbox.h"
#include "plait/timeline.h"

int main(int count, char** words) try {
  constexpr std::uint32_t kChunks = 100;
  if (count != 2) return 2;
  plait::Trace trace(plait::place_from_environment().rank);
  plait::Communicator comm = plait::Communicator::connect({.trace = &trace});
  plait::align_clock(trace, comm);
  const std::int64_t moment = plait::base::now();
  trace.flight(plait::Lane::comm, "moment", {.begin = moment, .end = moment});
  const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = 64});
  const int peer = 1 - comm.rank();
  const auto send = [&](std::uint32_t chunk) {
    mailbox->outbox(peer, 0);
    trace.mark(plait::Lane::comm, "posted", {.peer = peer, .chunk = static_cast<int>(chunk)});
    mailbox->post(peer, 0, {.chunk = chunk}, 64);
  };
  const auto receive = [&](std::uint32_t chunk) {
    mailbox->wait_arrived(peer, 0, {.chunk = chunk});
    trace.mark(plait::Lane::comm, "arrived", {.peer = peer, .chunk = static_cast<int>(chunk)});
    mailbox->release(peer, 0);
  };
  for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
    if (comm.rank() == 0) send(chunk);
    receive(chunk);
    if (comm.rank() == 1) send(chunk);
  }
  plait::write_timeline(words[1], trace, comm);
  std::ostringstream line;
  line << comm.rank() << ' ' << moment << '\n';
  std::cout << line.str() << std::flush;
} catch (const std::exception& error) {
  std::cerr << error.what() << std::endl;
  return 1;
}
