// A group of ranks that exchange chunks, seen from one of them.
//
//   int main() {  // under plait run, torchrun, mpirun or srun
//     plait::Communicator comm = plait::Communicator::connect();
//     std::vector<float> x(1000, comm.rank() + 1.0F);
//     plait::all_reduce({x.data(), x.size()}, comm);
//   }
//
// Threads of one process can be ranks too:
//
//   plait::run_in_threads(4, [](plait::Communicator& comm) { plait::barrier(comm); });
//
// Any number of communicators may exist; each is used by one thread at a time (abort() apart; the
// second of two at once gets Error{invalid_argument}, and the first goes on), and all its ranks
// make the same calls in the same order. When a rank dies, leaves, disagrees or lets
// the deadline pass, every other rank of the group gets the same Error from the call it is in, or
// its next one; the communicator is of no use after that. A process forked from a rank can't use
// the rank's communicators: it gets Error{invalid_argument}, and so does the use of a communicator
// that was moved to another.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plait/error.h"
#include "plait/export.h"
#include "plait/link.h"
#include "plait/mailbox.h"

namespace plait {

class Trace;

// Where a rank stands among the others.
struct Place {
  int rank;
  int world;
  std::string job = {};       // the same text in all ranks of this start, and in no other
  std::string launcher = {};  // what said so, for messages: "plait run", "torchrun", ...
  int hosts = 1;  // as the launcher has it, by which transports that can't join them are refused
  int local_rank = 0;     // among the ranks of its host: which device is its own
  std::string host = {};  // a name of the rank's host, where one machine simulates several
};

// Reads the place that plait run, torchrun, Open MPI, Slurm or MPICH's Hydra left in the
// environment; one rank alone when there is none. Refuses a launcher's that it can't read.
PLAIT_EXPORT Place place_from_environment();

// Every rank calls it with its bytes and gets the bytes of all ranks, in rank order.
using AllGatherBytes = std::function<std::vector<std::string>(const std::string& mine)>;

struct CommunicatorOptions {
  std::string transport = {};       // empty: PLAIT_TRANSPORT, else the best that can
  std::optional<Place> place = {};  // empty: from the environment
  AllGatherBytes all_gather = {};   // lends a framework's own store to the rendezvous
  std::optional<Link> link = {};    // empty: PLAIT_LINK, else none

  // How long a rank waits for another before it gives up. 0: PLAIT_TIMEOUT, else 10 minutes in a
  // call and 60 s in connect(). A rank of this host that dies is noticed at once by other means, so
  // patience costs little in a call, and a rank that writes a checkpoint or compiles needs minutes.
  // A rank that has not connected yet, or is on another host, is watched by this deadline alone.
  std::chrono::nanoseconds timeout{0};

  // Asked about every 10 ms during a wait, connect() included, on the thread that waits. What it
  // throws comes out of the call; the other ranks get Error{peer_lost}, and the group has failed.
  // In Python it is what lets Ctrl-C end a wait: it takes the GIL and calls PyErr_CheckSignals().
  std::function<void()> interrupted = {};

  Trace* trace = nullptr;  // records what this rank does; must outlive the communicator
};

class PLAIT_EXPORT Communicator {
 public:
  // Collective: returns when all ranks of the place's world have called it.
  static Communicator connect(const CommunicatorOptions& options = {});

  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();

  int rank() const;
  int world() const;
  std::string_view transport() const;
  std::optional<Link> link() const;
  Trace* trace() const;

  // Not collective. From the next call on this rank records into `trace`; null turns that off,
  // after which the trace may end. Collectives that are under way are recorded no more. Groups that
  // were split off before keep theirs.
  void set_trace(Trace* trace);

  // Collective. Ranks with the same color form a new group, ordered by key, then by rank here.
  // A negative color joins none and gets nullopt.
  std::optional<Communicator> split(int color, int key);

  // Collective. The same ranks as a group of their own, whose chunks travel over this emulated
  // link; nullopt: over none.
  Communicator with_link(const std::optional<Link>& link);

  // Collective. Mailboxes are costly to make and cheap to use: keep them, or ask for a shared one
  // by its description; cached_mailbox makes it at the first call.
  std::unique_ptr<Mailbox> make_mailbox(const MailboxDesc& desc);
  Mailbox& cached_mailbox(const MailboxDesc& desc);

  // Bytes of this rank's memory that its living mailboxes hold.
  std::size_t mailbox_bytes() const;

  // Not collective: throws Error{peer_lost} where a rank of the group has died, or the error with
  // which the group has ended. For programs whose ranks wait for one another by other means.
  void check_ranks();

  // Ends the group, and all that were split off it or off those: every rank gets Error{peer_lost}
  // with this reason from its current or next call. Any thread may call it at any time while the
  // communicator lives, also beside one that waits in it: it wakes that one too.
  void abort(std::string_view reason);

  class State;  // the collectives' side of it
  explicit Communicator(std::unique_ptr<State> state);
  State& state() const;

 private:
  std::unique_ptr<State> state_;
};

// Leaves the groups of all communicators of this process that still exist, which are of no use
// afterwards. Called when main() returns and by exit(), so that a rank whose communicators are
// global is not taken for dead; call it before _exit(), which runs nothing.
PLAIT_EXPORT void leave_all() noexcept;

// Ranks that are threads of this process: each thread joins with its rank.
class PLAIT_EXPORT ThreadGroup {
 public:
  explicit ThreadGroup(int world);
  ~ThreadGroup();
  Communicator join(int rank, const CommunicatorOptions& options = {}) const;

 private:
  class Room;
  std::shared_ptr<Room> room_;
};

// Runs `body` as `world` ranks, each in a thread of its own; when a rank throws, the others are
// told and the first Error is thrown here once all have ended. All record into one trace, if it is
// given; for a timeline each rank joins a ThreadGroup with its own.
PLAIT_EXPORT void run_in_threads(int world, const std::function<void(Communicator&)>& body,
                                 const CommunicatorOptions& options = {});

}  // namespace plait
