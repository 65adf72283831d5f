// Every rank sends the next one a greeting through a mailbox; then all add up their numbers.
//
//   plait run -n 2 -- 01_exchange
#include <plait/plait.h>

#include <cstdio>
#include <cstring>
#include <string>

int main() try {
  plait::Communicator comm = plait::Communicator::connect();
  const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = 64});
  const int next = (comm.rank() + 1) % comm.world();
  const int previous = (comm.rank() + comm.world() - 1) % comm.world();

  const std::string text = "hello from rank " + std::to_string(comm.rank());
  std::memcpy(mailbox->outbox(next, 0), text.data(), text.size());
  mailbox->post(next, 0, {}, text.size());

  mailbox->wait_arrived(previous, 0, {});
  const auto* in = reinterpret_cast<const char*>(mailbox->inbox(previous, 0));
  const std::string heard(in, mailbox->inbox_bytes(previous, 0));
  mailbox->release(previous, 0);

  auto sum = static_cast<float>(comm.rank() + 1);
  plait::all_reduce({&sum, 1}, comm);
  std::printf("rank %d of %d: %s; sum %g\n", comm.rank(), comm.world(), heard.c_str(), sum);
} catch (const plait::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
