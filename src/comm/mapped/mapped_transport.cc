#include "comm/mapped/mapped_transport.h"

#include "base/cpus.h"
#include "comm/mapped/mapped_mailbox.h"

namespace plait::comm {
namespace {

// Ranks are crowded when all of them together may run on fewer processors than they are.
WaitPolicy adapted(WaitPolicy policy, Rendezvous& rendezvous) {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const std::string& cpus :
       rendezvous.all_gather(base::to_bytes(base::allowed_cpus()), [] {})) {
    const cpu_set_t theirs = base::cpus_from_bytes(cpus);
    CPU_OR(&all, &all, &theirs);
  }
  policy.crowded = CPU_COUNT(&all) < rendezvous.world();
  return policy;
}

class MappedTransport final : public Transport {
 public:
  MappedTransport(std::unique_ptr<Rendezvous> rendezvous, const WaitPolicy& policy)
      : rendezvous_(std::move(rendezvous)),
        policy_(policy),
        group_(std::make_shared<MappedGroup>(rendezvous_, adapted(policy, *rendezvous_))) {}

  Group& group() override { return *group_; }

  std::vector<std::string> all_gather(const std::string& mine) override {
    return rendezvous_->all_gather(mine, interrupt());
  }

  std::unique_ptr<Mailbox> make_mailbox(const MailboxDesc& desc) override {
    return std::make_unique<MappedMailbox>(group_, *rendezvous_, desc);
  }

  std::unique_ptr<Transport> subgroup(const std::vector<int>& members) override {
    auto rendezvous = rendezvous_->subgroup(members, interrupt());
    if (rendezvous == nullptr) return nullptr;
    return std::make_unique<MappedTransport>(std::move(rendezvous), policy_);
  }

  void leave() noexcept override { group_->leave(); }

 private:
  Rendezvous::Interrupt interrupt() {
    return [this] { group_->raise_if_failed(); };
  }

  std::shared_ptr<Rendezvous> rendezvous_;
  WaitPolicy policy_;
  std::shared_ptr<MappedGroup> group_;
};

}  // namespace

std::unique_ptr<Transport> make_mapped_transport(std::unique_ptr<Rendezvous> rendezvous,
                                                 const WaitPolicy& policy) {
  return std::make_unique<MappedTransport>(std::move(rendezvous), policy);
}

}  // namespace plait::comm
