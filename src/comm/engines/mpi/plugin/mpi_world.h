// All processes of one communicator of MPI's, from the first time that they connect till MPI ends.
// It makes plait's communicators.
//
// Connecting may fail at one process and be tried again, while another is late or still in its
// first try. Therefore each try has a number, which identifies messages of an earlier one. A
// process says hello to all others at its beginning, and answers every hello while the try lasts:
//
//   hello       here is my try 3, I receive my group's messages by tag 14
//   answer      I am in my try 2, and know of your try 3
//   withdrawal  I have given up, at my deadline or because my caller has interrupted me
//
// A try succeeds when each of the others has said hello and has answered. Where one of them gives
// up just then, this process learns of it when the new group makes its first mailbox, by the
// deadline there: it connects again like the others. One that hears of an interruption ends its own
// try too, since the interrupted process perhaps never comes back. After a deadline the others go
// on waiting, since the process may come again before theirs.
#pragma once

#include <mpi.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/core/deadline.h"
#include "comm/engines/mpi/plugin/mpi_transport.h"

namespace plait::comm::mpi {

struct ConnectMessage;

class MpiWorld {
 public:
  explicit MpiWorld(const Processes& processes);
  ~MpiWorld();

  // Expects no more messages: MPI may complain of a receive that is left open at its end.
  void close() noexcept;

  // Collective over all processes. One that fails may be tried again. `watch`: as Site::watch.
  std::unique_ptr<Transport> connect(const WaitPolicy& policy, Deadline deadline,
                                     const std::function<void()>& watch);

 private:
  struct Peer {
    int number = 0;  // of its try; 0: it is in none
    bool has_answered = false;
    bool was_interrupted = false;  // in its last try, of which this process has not told its caller
    int first_tag = 0;
    std::string record;
  };

  void begin(int first_tag);
  void wait_for_all(const WaitPolicy& policy, Deadline& deadline,
                    const std::function<void()>& watch);
  void ask(const WaitPolicy& policy);
  void withdraw();
  std::unique_ptr<Transport> make_group(WaitPolicy policy);
  std::vector<int> find_missing() const;
  void refuse_for_dead(const std::vector<int>& missing) const;
  void refuse_for_interrupted();

  void expect_message();
  void read_messages();
  void read(const ConnectMessage& message, int peer);
  void send(const ConnectMessage& message, int peer);
  void answer(int peer);

  const Processes& processes_;
  int me_;
  std::vector<Peer> peers_;  // of this process: what it tells the others
  int number_ = 0;           // of this process's last try
  bool is_connecting_ = false;
  Nanoseconds began_at_ = 0;
  bool was_interrupted_ = false;                           // by its caller, in its last try
  std::shared_ptr<const LocalProcesses> local_processes_;  // null until a try has succeeded

  std::unique_ptr<ConnectMessage> arriving_;  // under hold_mpi()
  MPI_Request receiving_ = MPI_REQUEST_NULL;
};

}  // namespace plait::comm::mpi
