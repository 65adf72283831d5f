// Transport over TCP: one group, and what it agrees on.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/tcp/carrier.h"
#include "comm/tcp/tcp_group.h"
#include "comm/transport.h"

namespace plait::comm::tcp {

class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(std::shared_ptr<TcpGroup> group);

  Group& group() override { return *group_; }
  std::vector<std::string> all_gather(const std::string& mine) override;
  std::unique_ptr<MailboxBase> make_mailbox(const MailboxDesc& desc) override;
  std::unique_ptr<Transport> subgroup(const std::vector<int>& members) override;
  bool shares_clock() const override { return false; }
  void leave() noexcept override;

 private:
  // Each rank's number for what all of them are making; refuses ranks that make different things.
  std::vector<std::uint32_t> agree(std::uint32_t number, const std::string& purpose);

  std::shared_ptr<TcpGroup> group_;
};

// The transport of all ranks, which meet to make it. Chunks go by what `make_carrier` makes of
// their group; by their connections where it is empty. Collective.
using MakeCarrier = std::function<std::unique_ptr<Carrier>(TcpGroup& all)>;
std::unique_ptr<Transport> create(const Site& site, const MakeCarrier& make_carrier);

}  // namespace plait::comm::tcp
