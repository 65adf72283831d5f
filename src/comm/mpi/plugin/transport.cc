#include <algorithm>

#include "base/check.h"
#include "comm/mpi/plugin.h"
#include "comm/mpi/plugin/mpi_mailbox.h"
#include "plait/version.h"

namespace plait::comm::mpi {
namespace {

class MpiTransport final : public Transport {
 public:
  MpiTransport(Session session, const WaitPolicy& policy)
      : policy_(policy), group_(std::make_shared<MpiGroup>(std::move(session), policy)) {}

  Group& group() override { return *group_; }

  std::vector<std::string> all_gather(const std::string& mine) override {
    const auto interrupt = [this] {
      group_->listen();
      group_->raise_if_failed();
    };
    return group_->session().all_gather(mine, policy_.timeout, interrupt);
  }

  std::unique_ptr<Mailbox> make_mailbox(const MailboxDesc& desc) override {
    // Agreed on first, with a deadline: duplicating the communicator has none.
    const std::string mine = describe(desc);
    const auto all = all_gather(mine);
    for (int peer = 0; peer < static_cast<int>(all.size()); ++peer) {
      check_same_purpose(group_->rank(), mine, peer, all[peer]);
    }
    return std::make_unique<MpiMailbox>(group_, desc);
  }

  std::unique_ptr<Transport> subgroup(const std::vector<int>& members) override {
    // Everybody is here before MPI is asked: its own collectives have no deadline.
    all_gather("");
    // Not MPI_Comm_create_group, which hangs in Open MPI 4.1.4 for disjoint groups made at once.
    const auto me = std::find(members.begin(), members.end(), group_->rank());
    Session session =
        Session::split(group_->session().get(), members.empty() ? MPI_UNDEFINED : members.front(),
                       static_cast<int>(me - members.begin()));
    if (members.empty()) return nullptr;
    return std::make_unique<MpiTransport>(std::move(session), policy_);
  }

  void leave() noexcept override { group_->leave(); }

 private:
  WaitPolicy policy_;
  std::shared_ptr<MpiGroup> group_;
};

std::unique_ptr<Transport> create(const Site& site) {
  start_mpi();
  Session session = Session::duplicate(MPI_COMM_WORLD);
  PLAIT_CHECK(session.rank() == site.place.rank && session.world() == site.place.world,
              "MPI says that this is rank ", session.rank(), " of ", session.world(),
              ", but it was to be rank ", site.place.rank, " of ", site.place.world,
              ": was it started by mpirun?");
  // Latency is MPI's own affair; a rank that spins keeps others from their progress where cores are
  // few.
  WaitPolicy policy = site.policy;
  return std::make_unique<MpiTransport>(std::move(session), policy);
}

}  // namespace
}  // namespace plait::comm::mpi

extern "C" PLAIT_EXPORT const plait::comm::mpi::Plugin* plait_mpi_plugin() {
  static constexpr plait::comm::mpi::Plugin kPlugin = {
      .version = plait::kVersion.data(), .library = "Open MPI", .create = plait::comm::mpi::create};
  return &kPlugin;
}
