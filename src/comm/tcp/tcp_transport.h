// Transport over TCP, and through memory between ranks of one host: one group, and what it agrees
// on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/tcp/tcp_group.h"
#include "comm/transport.h"

namespace plait::comm::tcp {

class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(std::shared_ptr<TcpGroup> group);

  // Collective, once in the first group of all ranks: finds out which of them share memory. `host`:
  // see Place::host.
  void meet_near(const std::string& host);

  Group& group() override { return *group_; }
  std::vector<std::string> all_gather(const std::string& mine) override;
  std::unique_ptr<MailboxBase> make_mailbox(const MailboxDesc& desc) override;
  std::unique_ptr<Transport> subgroup(const std::vector<int>& members) override;
  bool shares_clock() const override { return false; }
  void leave() noexcept override;

 private:
  // What a rank brings to an agreement.
  struct Part {
    std::uint32_t number;  // of what all of them are making
    std::string memory;    // that it lends for it: see Lent::offer()
  };
  // The parts of all ranks; refuses ranks that make different things.
  std::vector<Part> agree(const Part& mine, const std::string& purpose);
  std::vector<base::Region> map_memory(const std::vector<Part>& parts, const Lent& mine,
                                       std::size_t bytes);

  std::shared_ptr<TcpGroup> group_;
};

}  // namespace plait::comm::tcp
