#include "comm/mapped/mapped_transport.h"

#include <utility>

#include "base/cpus.h"
#include "comm/core/deadline.h"
#include "comm/mapped/mapped_slots.h"

namespace plait::comm {
namespace {

// Ranks are oversubscribed when all of them together may run on fewer processors than they are.
WaitPolicy adapted(WaitPolicy policy, Rendezvous& rendezvous, const Rendezvous::Watch& watch) {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const std::string& cpus :
       rendezvous.all_gather(base::to_bytes(base::allowed_cpus()), watch)) {
    const cpu_set_t theirs = base::cpus_from_bytes(cpus);
    CPU_OR(&all, &all, &theirs);
  }
  policy.oversubscribed = CPU_COUNT(&all) < rendezvous.world();
  return policy;
}

// Watches the group while this rank meets the others in a rendezvous, as wait_slowly does in a
// wait: publishes which rank it waits for, notices ranks that die, and gives up at the deadline.
class SetupWatch {
 public:
  SetupWatch(MappedGroup& group, Operation operation)
      : group_(group),
        published_(group, PublishedWait::Blocks::yes),
        operation_(operation),
        deadline_(group.policy().timeout) {}

  Rendezvous::Watch watch() {
    return [this](int peer) { poll(peer); };
  }

 private:
  void poll(int peer) {
    const Awaited awaited = {.peer = peer, .tag = {.operation = operation_}};
    const bool waits = peer != group_.rank();
    if (waits) published_.publish(awaited);
    group_.raise_if_failed();
    group_.interrupt_if_asked(&awaited);
    // A peer may have sent something before it died that the rendezvous has not read yet, so a
    // death counts only at the next poll. The rendezvous itself reports peers that have left,
    // because it knows whether they came first.
    if (std::exchange(misses_one_, group_.misses_one())) group_.examine_lives(&awaited);
    group_.examine_calls();
    // The rendezvous finds out by itself whether the others have come meanwhile.
    if (deadline_.is_over() && waits) group_.give_up(awaited, [] { return false; });
  }

  MappedGroup& group_;
  PublishedWait published_;
  Operation operation_;
  Deadline deadline_;
  bool misses_one_ = false;
};

class MappedTransport final : public Transport, public Regrouping {
 public:
  MappedTransport(std::unique_ptr<Rendezvous> rendezvous, const WaitPolicy& policy,
                  const Rendezvous::Watch& watch = {})
      : rendezvous_(std::move(rendezvous)),
        group_(std::make_shared<MappedGroup>(rendezvous_, adapted(policy, *rendezvous_, watch),
                                             watch)) {}

  Group& group() override { return *group_; }

  void set_timeout(Nanoseconds timeout) override {
    rendezvous_->set_timeout(timeout);
    group_->set_timeout(timeout);
  }

  std::vector<std::string> all_gather(const std::string& mine) override {
    SetupWatch setup(*group_, Operation::split);
    auto all = rendezvous_->all_gather(mine, setup.watch());
    // The texts of different calls may look alike. Each rank has announced its call before.
    group_->examine_calls();
    return all;
  }

  std::unique_ptr<SlotTransport> make_slots(const MailboxDesc& desc) override {
    SetupWatch setup(*group_, Operation::make_mailbox);
    return std::make_unique<MappedSlots>(group_, desc, *rendezvous_, setup.watch());
  }

  std::unique_ptr<Transport> subgroup(const std::vector<int>& members) override {
    SetupWatch setup(*group_, Operation::split);
    auto rendezvous = rendezvous_->subgroup(members, setup.watch());
    if (rendezvous == nullptr) return nullptr;
    try {
      const auto watch = [&](int member) { setup.watch()(members[member]); };
      auto part = std::make_unique<MappedTransport>(std::move(rendezvous), group_->policy(), watch);
      part->group_->descend_from(group_, members);
      return part;
    } catch (const Error& error) {
      if (group_->was_interrupted()) throw;
      group_->raise_if_failed();
      throw seen_from_parent(error, members);
    }
  }

  Regrouping* regrouping() override { return this; }

  Parts agree(const std::string& mine, Nanoseconds patience) override {
    return group_->agree(mine, patience);
  }

  std::unique_ptr<Transport> regroup(const std::vector<int>& members, Exchange exchange) override {
    const Rendezvous::Watch watch = [&](int /*member*/) { group_->check_regrouping(members); };
    WaitPolicy connecting = group_->policy();
    connecting.timeout = connecting.connect_timeout;
    rendezvous_->set_timeout(connecting.timeout);
    auto rendezvous = rendezvous_->regroup(members, exchange, watch);
    return std::make_unique<MappedTransport>(std::move(rendezvous), connecting, watch);
  }

  void withdraw() noexcept override { group_->withdraw(); }
  void conclude() noexcept override {}

  void leave() noexcept override { group_->leave(); }

 private:
  std::shared_ptr<Rendezvous> rendezvous_;
  std::shared_ptr<MappedGroup> group_;
};

}  // namespace

Rendezvous::Watch watch_for_interruption(const WaitPolicy& policy) {
  if (!policy.interrupted) return {};
  return [ask = policy.interrupted](int /*peer*/) { ask(); };
}

std::unique_ptr<Transport> make_mapped_transport(std::unique_ptr<Rendezvous> rendezvous,
                                                 const WaitPolicy& policy) {
  return std::make_unique<MappedTransport>(std::move(rendezvous), policy,
                                           watch_for_interruption(policy));
}

}  // namespace plait::comm
