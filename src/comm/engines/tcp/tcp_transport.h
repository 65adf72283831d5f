// Transport over TCP, and through memory between ranks of one host: one group, and what its ranks
// agree on.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/control/carrier.h"
#include "comm/control/tcp_group.h"
#include "comm/core/transport.h"

namespace plait::comm::tcp {

class TcpTransport final : public Transport, public Regrouping {
 public:
  explicit TcpTransport(std::shared_ptr<TcpGroup> group);

  // Collective, once in the first group of all ranks: finds out which of them share memory. `host`:
  // see Place::host.
  void meet_near(const std::string& host);

  Group& group() override { return *group_; }
  std::vector<std::string> all_gather(const std::string& mine) override;
  std::unique_ptr<SlotTransport> make_slots(const MailboxDesc& desc) override;
  std::unique_ptr<Transport> subgroup(const std::vector<int>& members) override;
  bool shares_clock() const override { return false; }
  std::string route_to(int peer) const override;
  void leave() noexcept override;

  Regrouping* regrouping() override { return this; }
  Parts agree(const std::string& mine, Nanoseconds patience) override;
  std::unique_ptr<Transport> regroup(const std::vector<int>& members, Exchange exchange) override;
  void withdraw() noexcept override { group_->agreements().withdraw(); }
  void conclude() noexcept override;

 private:
  std::shared_ptr<TcpGroup> make_group(const std::vector<int>& members) const;

  // A rank's part in an agreement.
  struct Contribution {
    std::uint32_t number;  // of what all of them are making
    std::string memory;    // that it lends for it: see SharedRegion::offer()
  };
  // The contributions of all ranks; refuses ranks that make different things.
  std::vector<Contribution> agree(const Contribution& mine, const std::string& purpose);
  std::vector<base::Region> map_memory(const std::vector<Contribution>& contributions,
                                       const SharedRegion& mine, std::size_t bytes);

  std::shared_ptr<TcpGroup> group_;
};

// The transport of all ranks, which meet to make it. Chunks go by what `make_carrier` makes of
// their group; by their connections where it is empty. Collective.
using MakeCarrier = std::function<std::unique_ptr<Carrier>(TcpGroup& all)>;
std::unique_ptr<Transport> create(const Site& site, const MakeCarrier& make_carrier);

}  // namespace plait::comm::tcp
