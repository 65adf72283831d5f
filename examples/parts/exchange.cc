#include <plait/plait.h>
#include <cstdio>

int main() try {  // every rank greets the next one; then all sum their numbers
  plait::Communicator comm = plait::Communicator::connect();
  const int rank = comm.rank(), world = comm.world();
  const int next = (rank + 1) % world, previous = (rank + world - 1) % world;
  const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = sizeof rank});
  *reinterpret_cast<int*>(mailbox->outbox(next, 0)) = rank;
  mailbox->post(next, 0, {}, sizeof rank);
  mailbox->wait_arrived(previous, 0, {});
  const int heard = *reinterpret_cast<const int*>(mailbox->inbox(previous, 0));
  mailbox->release(previous, 0);
  auto sum = static_cast<float>(rank + 1);
  plait::all_reduce({&sum, 1}, comm);
  std::printf("rank %d of %d: hello from rank %d; sum %g\n", rank, world, heard, sum);
} catch (const plait::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
