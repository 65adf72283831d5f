// Transport over MPI: one group, and what it agrees on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/core/transport.h"
#include "comm/engines/mpi/plugin/members.h"
#include "comm/engines/mpi/plugin/mpi_group.h"
#include "comm/engines/mpi/plugin/session.h"

namespace plait::comm::mpi {

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(std::shared_ptr<MpiGroup> group);
  ~MpiTransport() override;

  Group& group() override { return *group_; }
  std::vector<std::string> all_gather(const std::string& mine) override;
  std::unique_ptr<SlotTransport> make_slots(const MailboxDesc& desc) override;
  std::unique_ptr<Transport> subgroup(const std::vector<int>& members) override;
  bool shares_clock() const override { return false; }
  void leave() noexcept override { group_->leave(); }

 private:
  // Reserves `count` tags, and learns what the others have reserved for the same purpose.
  Members agree(int count, const std::string& purpose);
  void refuse_for_leavers(const std::vector<int>& missing) const;

  std::shared_ptr<MpiGroup> group_;
};

}  // namespace plait::comm::mpi
