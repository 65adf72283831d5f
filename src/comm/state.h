// A communicator from the inside: its transport, its mailboxes, and the collectives under way.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

#include "base/default_floats.h"
#include "base/function_ref.h"
#include "base/host.h"
#include "comm/collectives/chunks.h"
#include "comm/emulated/link_clock.h"
#include "comm/flow/lanes.h"
#include "comm/interruption.h"
#include "comm/mailbox.h"
#include "comm/patience.h"
#include "comm/transport.h"
#include "plait/collectives.h"
#include "plait/communicator.h"

namespace plait {

// A collective as a state machine: step() does what can be done now.
class Pending::Task {
 public:
  explicit Task(const Tag& tag) : tag_(tag) {}
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual ~Task() = default;

  // What comes before the first step, when the tasks before this one are done: only now is their
  // output there to be read.
  virtual void begin() {}

  // True when all is done, and from then on. Here alone a collective computes: with default
  // floats, so that no bit of a sum depends on which rank adds it up, nor in which call.
  bool step() {
    const base::DefaultFloats floats;
    return advance();
  }

  // Which rank it waits for, and for what.
  virtual comm::Awaited awaited() const = 0;

  // Has it written to a trace as one flight, from now until it is done or abandoned. A blocking
  // call is a span of its caller's instead.
  void record(Trace* trace, Label label, std::int64_t bytes) {
    trace_ = trace;
    label_ = label;
    bytes_ = bytes;
    started_at_ = base::now();
  }

  void stop_recording() { trace_ = nullptr; }

  // Which call this is; the number is given when the task is started.
  const Tag& tag() const { return tag_; }
  void set_call(std::uint32_t call) { tag_.call = call; }

  // Whether it is destroyed, and not done, by an exception that the caller's hook has thrown since
  // it was made: what interrupts a call does not wait for another.
  bool is_left_by_interruption() const {
    return fate_ == Fate::under_way && std::uncaught_exceptions() > 0 && interruption_.has_come();
  }

  // Where a Pending stands that outlives what it belongs to.
  enum class Fate { under_way, done, abandoned };
  Fate fate() const { return fate_; }
  void set_fate(Fate fate) {
    fate_ = fate;
    if (trace_ == nullptr) return;
    trace_->flight(Lane::comm, label_, {.begin = started_at_, .end = base::now()},
                   {.bytes = bytes_});
  }

 protected:
  virtual bool advance() = 0;

 private:
  Tag tag_;
  comm::Interruption interruption_;
  Fate fate_ = Fate::under_way;

  Trace* trace_ = nullptr;
  Label label_ = "";
  std::int64_t bytes_ = 0;
  base::Nanoseconds started_at_ = 0;
};

class Communicator::State {
 public:
  using Task = Pending::Task;

  State(std::string transport_name, std::unique_ptr<comm::Transport> transport, Trace* trace);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  // Collective: makes a transport by `create`, and a communicator of it. Every wait until then has
  // the policy's deadline for connecting.
  struct Connection {
    std::string transport_name;
    comm::WaitPolicy policy;
    std::string host = {};  // see Place::host

    // When this rank began to wait for the others, if that was before; then all of its waits
    // together have that deadline.
    std::optional<comm::Nanoseconds> began_at = {};
    std::optional<comm::LinkView> link = {};
    Trace* trace = nullptr;
  };
  using Create =
      base::FunctionRef<std::unique_ptr<comm::Transport>(const comm::WaitPolicy& connecting)>;
  static std::unique_ptr<State> connect(const Connection& wanted, Create create);

  // Collective: counts the hosts, and makes the mailbox that the collectives use.
  void open(std::optional<comm::LinkView> link);

  // How long this rank waits for another from the next call on. While one thread alone knows of the
  // communicator.
  void set_timeout(comm::Nanoseconds timeout) { transport_->set_timeout(timeout); }

  comm::Group& group() { return transport_->group(); }
  const comm::Group& group() const { return transport_->group(); }
  const std::string& transport_name() const { return transport_name_; }
  // Emulated, or the transport's own where it knows that.
  std::optional<Link> link() const {
    return link_ ? std::optional(link_->clock->link()) : transport_->link();
  }
  Trace* trace() const { return trace_; }

  // From now on; groups that are split off record there too. Tasks under way record nowhere, as the
  // trace that they began with may end before they do.
  void set_trace(Trace* trace);

  // How many hosts the ranks are on. They have told one another: all have the same number.
  int hosts() const { return hosts_; }
  int ranks_per_host() const { return ranks_per_host_; }  // see placement.h
  // What this rank tells in groups that are split off; empty: it doesn't know.
  void set_host(std::string name) { host_ = std::move(name); }
  bool shares_clock() const { return transport_->shares_clock(); }
  std::string route_to(int peer) const { return transport_->route_to(peer); }
  std::size_t mailbox_bytes() const { return mailbox_bytes_->load(std::memory_order_relaxed); }

  // What the collectives send through.
  Mailbox::State& mailbox() { return *collective_mailbox_; }
  comm::Lanes& lanes() { return *lanes_; }
  const comm::LaneCapacity& lane_capacity() const { return lane_capacity_; }
  // Which ranks of which hosts act together.
  const comm::Hosts& host_ranks() const { return *host_ranks_; }

  std::unique_ptr<Mailbox> make_mailbox(const MailboxDesc& desc);
  Mailbox& cached_mailbox(const MailboxDesc& desc);
  std::unique_ptr<State> split(int color, int key);

  // Splits, and emulates another link or none: `link` is a view of all this group's ranks.
  std::unique_ptr<State> split(int color, int key, std::optional<comm::LinkView> link);

  // The beginning of an operator's call, after what was started before: gives it its number, and
  // tells the peers what this rank is in.
  Tag begin_call(Tag tag);

  // A communicator serves one thread at a time: each call holds a Use, whose constructor throws
  // where another thread holds one. A call within a call of the same thread is allowed, since poll
  // hooks make such calls.
  class Use {
   public:
    explicit Use(State& state) : state_(state), is_outermost_(state.begin_use()) {}
    ~Use() {
      if (is_outermost_) state_.end_use();
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    State& state_;
    bool is_outermost_;
  };

  // Between the beginning and the end of one on this rank: no other may begin. Asked and told by
  // the thread that holds the Use.
  bool is_in_operator() const { return in_operator_; }
  void set_in_operator(bool is_in) { in_operator_ = is_in; }

  // What operators share: the first of their mailboxes, in the order in which they were made, that
  // is at least as large as `least`; where none is, one as `wanted` says is made, which is
  // collective. Which one it is follows from what all ranks have made together, and stays the same.
  // Ranks that disagree are told how their operators differ (`why`), and not their mailboxes.
  Mailbox::State& operator_mailbox(const MailboxDesc& least, const MailboxDesc& wanted,
                                   const Tag& why);

  // Runs a task to its end, after those that were started before.
  void run(Task& task);

  // Begins a task, or puts it behind those under way.
  void start(std::shared_ptr<Task> task);

  // Does what can be done now; true when `task` is done. A rank that polls is as good as one that
  // waits: it notices lost peers, and its patience ends too.
  bool poll(const Task& task);
  void wait(const Task& task);

  void check_ranks();
  void abort(std::string_view reason);

  // See Communicator::survivors(), and survivors.cc.
  struct Regrouped {
    std::unique_ptr<State> state;
    std::vector<int> lost;
    std::uint64_t completed_calls;
  };
  Regrouped survivors();

  // Told at the end of each call of an operator. Its collectives don't count for themselves.
  void note_completed() { ++completed_calls_; }
  std::uint64_t completed_calls() const { return completed_calls_; }

  // The process ends while the communicator lives: leaves the group as its destruction would, and
  // refuses all further calls. Other threads may still be in one.
  void leave() noexcept;

  // Refuses a process that was forked from the one whose communicator it is.
  void check_not_forked() const;

  // What a module above keeps with the communicator; it ends before the mailboxes do.
  std::shared_ptr<void>& kept(const std::type_info& what) { return kept_[what]; }

 private:
  // An address that each thread has for itself.
  static const void* this_thread() { return __builtin_thread_pointer(); }

  // Memory ordering: a thread that finds no other in it (acquire) also finds what the last one has
  // left behind (release, in end_use()), however the program has handed the communicator over.
  // Relaxed otherwise: a thread finds itself only where it has written itself, and where it finds
  // another it reads nothing more.
  bool begin_use() {
    const void* found = user_.load(std::memory_order_relaxed);
    if (found == this_thread()) return false;
    found = nullptr;
    if (!user_.compare_exchange_strong(found, this_thread(), std::memory_order_acquire,
                                       std::memory_order_relaxed)) [[unlikely]] {
      refuse_two_threads();
    }
    return true;
  }
  void end_use() {
    if (!group().in_child()) show_end_of_use();       // the page is the parent's
    user_.store(nullptr, std::memory_order_release);  // pairs with begin_use()
  }
  [[noreturn]] void refuse_two_threads() const;
  void show_end_of_use() {
    if (queue_.empty()) return group().rest();
    group().show_started(patience_.polled_at());
  }

  bool advance(const Task& task);
  void look_around();
  void check_usable() const;
  void announce(const Tag& tag);
  void begin(Task& task);
  void drain();
  bool is_queued(const Task& task) const;
  std::unique_ptr<Mailbox::State> build_mailbox(const MailboxDesc& desc);
  std::unique_ptr<Mailbox::State> make_mailbox(const MailboxDesc& desc, Tag why);
  Mailbox* find_mailbox(const MailboxDesc& desc);  // null: there is none of this description
  void open_part(State& part, std::optional<comm::LinkView> link, const std::vector<int>& members);
  comm::Regrouping& usable_regrouping();
  Regrouped find_survivors(comm::Regrouping& regrouping);
  void give_up(comm::Regrouping& regrouping) noexcept;
  void discard() noexcept;
  std::unique_ptr<State> make_part(const std::vector<int>& members,
                                   comm::Regrouping::Exchange exchange);
  void note_task_completed() {
    if (!in_operator_) note_completed();
  }
  static std::vector<int> members_of(const std::vector<std::string>& claims, int color);
  int count_hosts();

  std::string transport_name_;
  std::unique_ptr<comm::Transport> transport_;
  Trace* trace_;
  int hosts_ = 1;
  int ranks_per_host_ = 1;
  std::string host_ = base::host_id();
  std::optional<comm::LinkView> link_;
  std::shared_ptr<std::atomic<std::size_t>> mailbox_bytes_ =
      std::make_shared<std::atomic<std::size_t>>(0);
  std::unique_ptr<Mailbox::State> collective_mailbox_;
  comm::LaneCapacity lane_capacity_;
  std::unique_ptr<comm::Lanes> lanes_;
  std::unique_ptr<comm::Hosts> host_ranks_;
  std::vector<std::pair<MailboxDesc, std::unique_ptr<Mailbox>>> cache_;
  std::vector<std::unique_ptr<Mailbox::State>> operator_mailboxes_;
  std::map<std::type_index, std::shared_ptr<void>> kept_;
  std::deque<std::shared_ptr<Task>> queue_;
  std::uint32_t calls_ = 0;
  std::uint64_t completed_calls_ = 0;
  bool has_gone_on_ = false;                // its survivors have another group
  bool has_given_up_ = false;               // survivors() has failed
  std::atomic<const void*> user_{nullptr};  // the thread that holds a Use
  std::atomic<bool> has_left_{false};
  bool in_operator_ = false;

  // Polling for the front of the queue.
  comm::Patience patience_;
  std::uint64_t polled_moves_ = 0;
  comm::KnownWait polling_;
};

}  // namespace plait
