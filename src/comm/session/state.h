// A communicator from the inside: its transport, its mailboxes, and the collectives under way, put
// together of parts that each do one thing.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "base/host.h"
#include "comm/core/living.h"
#include "comm/core/mailbox.h"
#include "comm/core/transport.h"
#include "comm/emulated/link_clock.h"
#include "comm/flow/chunks.h"
#include "comm/flow/lanes.h"
#include "comm/session/call_counter.h"
#include "comm/session/mailbox_cache.h"
#include "comm/session/membership.h"
#include "comm/session/placement.h"
#include "comm/session/split_claim.h"
#include "comm/session/started_tasks.h"
#include "comm/session/task_queue.h"
#include "comm/survivors/regrouping.h"
#include "plait/communicator.h"

namespace plait {

class Communicator::State final : private comm::LivingCommunicator {
 public:
  using Task = Pending::Task;

  State(std::string transport_name, std::unique_ptr<comm::Transport> transport, Trace* trace);
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

  // Collective: counts the hosts, and makes the mailbox that the collectives use. Refuses ranks
  // that emulate different links.
  void open(std::optional<comm::LinkView> link);

  // How long this rank waits for another from the next call on. While one thread alone knows of the
  // communicator.
  void set_timeout(comm::Nanoseconds timeout) { transport_->set_timeout(timeout); }

  comm::Group& group() const { return membership_.group(); }
  const std::string& transport_name() const { return transport_name_; }
  // Emulated, or the transport's own where it knows that.
  std::optional<Link> link() const {
    const auto& view = mailboxes_.link();
    return view ? std::optional(view->clock->link()) : transport_->link();
  }
  Trace* trace() const { return trace_; }

  // From now on; groups that are split off record there too. Tasks under way record nowhere, as the
  // trace that they began with may end before they do.
  void set_trace(Trace* trace);

  // How many hosts the ranks are on. They have told one another: all have the same number.
  int hosts() const { return placement_.hosts; }
  int ranks_per_host() const { return placement_.ranks_per_host; }  // see placement.h
  // The host that this rank names in groups that are split off; empty: it doesn't know.
  void set_host(std::string name) { host_ = std::move(name); }
  bool shares_clock() const { return transport_->shares_clock(); }
  std::string route_to(int peer) const { return transport_->route_to(peer); }
  std::size_t mailbox_bytes() const { return mailboxes_.held_bytes(); }

  // The mailbox of the collectives.
  Mailbox::State& mailbox() { return mailboxes_.of_collectives(); }
  comm::Lanes& lanes() { return *lanes_; }
  const comm::LaneCapacity& lane_capacity() const { return lane_capacity_; }
  // Which ranks of which hosts act together.
  const comm::Hosts& host_ranks() const { return *host_ranks_; }

  // See MailboxCache.
  std::unique_ptr<Mailbox> make_mailbox(const MailboxDesc& desc) {
    const Use use(*this);
    return mailboxes_.make(desc);
  }
  Mailbox& cached_mailbox(const MailboxDesc& desc) {
    const Use use(*this);
    return mailboxes_.cached(desc);
  }
  Mailbox::State& operator_mailbox(const MailboxDesc& least, const MailboxDesc& wanted,
                                   const Tag& why) {
    const Use use(*this);
    return mailboxes_.of_operators(least, wanted, why);
  }

  std::unique_ptr<State> split(int color, int key);

  // `link` is a view of all this group's ranks.
  std::unique_ptr<State> with_link(std::optional<comm::LinkView> link);

  // The beginning of an operator's call.
  Tag begin_call(const Tag& tag) { return tasks_.begin_call(tag); }

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

  // See CallCounter. Asked and told by the thread that holds the Use.
  bool is_in_operator() const { return calls_.is_in_operator(); }
  void set_in_operator(bool is_in) { calls_.set_in_operator(is_in); }

  // See TaskQueue.
  void run(Task& task) {
    const Use use(*this);
    tasks_.run(task);
  }
  void start(std::shared_ptr<Task> task) {
    const Use use(*this);
    tasks_.start(std::move(task));
  }
  bool poll(const Task& task) {
    const Use use(*this);
    return tasks_.poll(task);
  }
  void wait(const Task& task) {
    const Use use(*this);
    tasks_.wait(task);
  }

  void check_ranks();
  void abort(std::string_view reason);

  // See Communicator::survivors(), and survivors.cc.
  struct Regrouped {
    std::unique_ptr<State> state;
    std::vector<int> lost;
    std::uint64_t completed_calls;
  };
  Regrouped survivors();

  // Told at the end of each call of an operator.
  void note_completed() { calls_.complete_operator(); }
  std::uint64_t completed_calls() const { return calls_.completed(); }

  // See Membership.
  void check_not_forked() const { membership_.check_not_forked(); }

  // State that a module above keeps with the communicator; it ends before the mailboxes do.
  std::shared_ptr<void>& kept(const std::type_info& what) { return kept_[what]; }

 private:
  void leave() noexcept override { membership_.leave(); }
  void show_wait_elsewhere(const comm::Group& other,
                           const comm::Awaited* awaited) noexcept override;

  bool begin_use() { return started_->guard().begin(); }
  void end_use() {
    if (!group().in_child()) tasks_.show();  // the page is the parent's
    started_->note_call();
    started_->guard().end();
  }

  comm::Placement find_placement(const std::optional<comm::LinkView>& link);
  std::unique_ptr<State> make_part(Operation call, const comm::SplitClaim& claim,
                                   std::optional<comm::LinkView> link);
  void open_part(State& part, std::optional<comm::LinkView> link, const std::vector<int>& members);
  comm::Regrouping& usable_regrouping();
  Regrouped find_survivors(comm::Regrouping& regrouping);
  void give_up(comm::Regrouping& regrouping) noexcept;
  void discard() noexcept;
  std::unique_ptr<State> regroup(const std::vector<int>& members,
                                 comm::Regrouping::Exchange exchange);

  std::string transport_name_;
  std::unique_ptr<comm::Transport> transport_;
  Trace* trace_;
  std::string host_ = base::host_id();
  comm::Placement placement_;
  comm::LaneCapacity lane_capacity_;
  std::unique_ptr<comm::Lanes> lanes_;
  std::unique_ptr<comm::Hosts> host_ranks_;
  comm::Membership membership_;
  comm::CallCounter calls_;
  comm::TaskQueue tasks_;
  std::shared_ptr<comm::StartedTasks> started_;
  comm::MailboxCache mailboxes_;
  std::map<std::type_index, std::shared_ptr<void>> kept_;
  std::uintptr_t waits_elsewhere_ = 0;  // the thread that shows it here; 0: none
  bool has_gone_on_ = false;            // its survivors have another group
  bool has_given_up_ = false;           // survivors() has failed
};

}  // namespace plait
