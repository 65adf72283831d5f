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
// Any number of communicators may exist. One thread at a time uses each of them, except for
// abort(): if two threads call at once, the second gets Error{invalid_argument} and the first
// continues. All ranks of a communicator make the same calls in the same order. When a rank dies,
// leaves, disagrees or lets the deadline pass, every other rank of the group gets the same Error
// from its current or next call. After that, only survivors() can be called on the communicator.
// A process forked from a rank can't use the rank's communicators: it gets
// Error{invalid_argument}. A communicator that was moved from throws the same.
#pragma once

#include <chrono>
#include <cstdint>
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
struct Survivors;

// The place of a rank among the others.
struct Place {
  int rank;
  int world;
  std::string job = {};       // the same text in all ranks of this start, and in no other
  std::string launcher = {};  // its source, for messages: "plait run", "torchrun", ...
  int hosts = 1;              // as the launcher says; transports that can't span them are refused
  int local_rank = 0;         // among the ranks of its host; selects its device
  std::string host = {};      // a name for the rank's host, if one machine simulates several
};

// Reads the place that plait run, torchrun, Open MPI, Slurm or MPICH's Hydra has put into the
// environment. Without one it is a single rank. A launcher's variables that it can't read are
// refused.
PLAIT_EXPORT Place place_from_environment();

// Every rank calls it with its bytes and gets the bytes of all ranks, in rank order.
using AllGatherBytes = std::function<std::vector<std::string>(const std::string& mine)>;

struct CommunicatorOptions {
  std::string transport = {};       // empty: PLAIT_TRANSPORT, else the best usable one
  std::optional<Place> place = {};  // empty: from the environment
  AllGatherBytes all_gather = {};   // lends a framework's own store to the rendezvous
  std::optional<Link> link = {};    // empty: PLAIT_LINK, else none

  // How long a rank waits for another before it gives up. 0: PLAIT_TIMEOUT, else 10 minutes in a
  // call and 60 s in connect(). A death on this host is noticed at once by other means, so a long
  // deadline costs little in a call, and a rank that writes a checkpoint or compiles needs minutes.
  // A rank that has not connected yet, and over MPI a rank on another host, can be noticed only by
  // this deadline.
  std::chrono::nanoseconds timeout{0};

  // Called about every 10 ms during a wait, including connect(), on the thread that waits. An
  // exception from it ends the call; the other ranks get Error{peer_lost}, and the group has
  // failed. Python uses it to let Ctrl-C end a wait: it takes the GIL and calls
  // PyErr_CheckSignals().
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
  int hosts() const;  // that the ranks are on
  std::string_view transport() const;
  std::optional<Link> link() const;
  Trace* trace() const;

  // Not collective. From the next call on, this rank records into `trace`. Null turns recording
  // off; then the trace may be destroyed. Collectives that are under way are no longer recorded.
  // Groups that were split off earlier keep their traces.
  void set_trace(Trace* trace);

  // Collective. Ranks with the same color form a new group, ordered by key, then by rank here. A
  // rank with a negative color joins no group and gets nullopt.
  std::optional<Communicator> split(int color, int key);

  // Collective. The same ranks as a group of their own, whose chunks travel over this emulated
  // link; nullopt: over none.
  Communicator with_link(const std::optional<Link>& link);

  // Collective. Mailboxes are expensive to make and cheap to use. Keep them, or get a shared one by
  // its description from cached_mailbox, which makes it at the first call.
  std::unique_ptr<Mailbox> make_mailbox(const MailboxDesc& desc);
  Mailbox& cached_mailbox(const MailboxDesc& desc);

  // Bytes of this rank's memory that its existing mailboxes hold.
  std::size_t mailbox_bytes() const;

  // Not collective. Throws Error{peer_lost} if a rank of the group has died, or the error with
  // which the group has failed. It is for programs whose ranks wait for one another by other means.
  void check_ranks();

  // For the ranks that are left when an error has ended the group. Each of them calls it, and all
  // get the same answer, even if more ranks die meanwhile. A rank that has not called it by the
  // deadline counts as lost, and gets Error{timeout} if it calls later. Over TCP, ranks that may be
  // alive beyond a broken cable must be fewer than those that go on. Most MPI launchers end all.
  Survivors survivors();

  // The number of calls of collectives and operators of this communicator that have ended on this
  // rank; Survivors::comm counts from 0 again. All ranks make the same calls, so a number means the
  // same call on each of them: a program can note it to know later from where to repeat.
  std::uint64_t completed_calls() const;

  // Ends the group, and all groups that were split off it, directly or indirectly. Every rank gets
  // Error{peer_lost} with this reason from its current or next call. Any thread may call it at any
  // time while the communicator exists. A thread that waits in the communicator is woken too.
  // The group that survivors() returns was split off none: it doesn't end with the old group, nor
  // with a group that the old one was split off.
  void abort(std::string_view reason);

  class State;  // the collectives' side of it
  explicit Communicator(std::unique_ptr<State> state);
  State& state() const;

 private:
  std::unique_ptr<State> state_;
};

// The ranks that are left of a group. The old communicator, and all that was made with it, can't be
// used any more; prepare operators anew with this one.
struct Survivors {
  Communicator comm;              // the survivors, in their old order
  std::vector<int> lost;          // the other ranks, by their numbers in the old group
  std::uint64_t completed_calls;  // by every survivor, in the old group: repeat the calls after
};

// Leaves the groups of all communicators of this process that still exist; they can't be used
// afterwards. It runs when main() returns and in exit(), so that a rank whose communicators are
// global does not count as dead. Call it before _exit(), which runs no handlers.
PLAIT_EXPORT void leave_all() noexcept;

// Ranks that are threads of this process: each thread joins with its rank.
class PLAIT_EXPORT ThreadGroup {
 public:
  explicit ThreadGroup(int world);
  ~ThreadGroup();
  Communicator join(int rank, const CommunicatorOptions& options = {}) const;

 private:
  class Rendezvous;
  std::shared_ptr<Rendezvous> rendezvous_;
};

// Runs `body` as `world` ranks, each in its own thread. If a rank throws, the others get an error,
// and the first Error is thrown here once all threads have ended. All ranks record into
// options.trace, if it is given. For a timeline of single ranks, let each join a ThreadGroup with
// its own trace.
PLAIT_EXPORT void run_in_threads(int world, const std::function<void(Communicator&)>& body,
                                 const CommunicatorOptions& options = {});

}  // namespace plait
