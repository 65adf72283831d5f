#include "comm/tcp/tcp_transport.h"

#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "comm/tcp/tcp_mailbox.h"

namespace plait::comm::tcp {
namespace {

// What a rank brings to an agreement, as "14 mailbox of 2 slots".
struct Offer {
  std::uint32_t number;
  std::string purpose;
};

Offer read(const std::string& text) {
  const auto blank = text.find(' ');
  const auto number =
      blank == std::string::npos ? std::nullopt : base::parse_int(text.substr(0, blank));
  // A rank in another call sends something else.
  if (!number || *number < 0 || *number > UINT32_MAX)
    return {.number = 0, .purpose = "call of another kind"};
  return {.number = static_cast<std::uint32_t>(*number), .purpose = text.substr(blank + 1)};
}

}  // namespace

TcpTransport::TcpTransport(std::shared_ptr<TcpGroup> group) : group_(std::move(group)) {}

std::vector<std::string> TcpTransport::all_gather(const std::string& mine) {
  return group_->all_gather(mine, group_->policy().timeout);
}

// Chunks may come as soon as the other ranks know the number, so the memory for them is made first.
std::unique_ptr<MailboxBase> TcpTransport::make_mailbox(const MailboxDesc& desc) {
  auto mailbox = std::make_unique<TcpMailbox>(group_, desc);
  mailbox->set_numbers(agree(mailbox->number(), comm::describe(desc)));
  return mailbox;
}

std::unique_ptr<Transport> TcpTransport::subgroup(const std::vector<int>& members) {
  Members chosen = {.processes = {}, .numbers = {}, .me = 0};
  for (const int member : members) {
    if (member == group_->rank()) chosen.me = chosen.size();
    chosen.processes.push_back(group_->members().processes[member]);
  }
  std::shared_ptr<TcpGroup> part;
  if (!members.empty()) {
    part = std::make_shared<TcpGroup>(group_->mesh(), std::move(chosen), group_->policy());
  }
  const auto numbers = agree(part == nullptr ? 0 : part->number(), "group");
  if (part == nullptr) return nullptr;
  std::vector<std::uint32_t> theirs;
  theirs.reserve(members.size());
  for (const int member : members) theirs.push_back(numbers[member]);
  part->set_numbers(std::move(theirs));
  part->descend_from(group_, members);
  return std::make_unique<TcpTransport>(std::move(part));
}

std::string TcpTransport::route_to(int peer) const {
  const std::string ends = group_->mesh()->ends_of(group_->members().processes[peer]);
  return ends.empty() ? "" : "tcp: " + ends;
}

std::vector<std::uint32_t> TcpTransport::agree(std::uint32_t number, const std::string& purpose) {
  const auto answers = all_gather(base::sentence(number, ' ', purpose));
  std::vector<std::uint32_t> numbers;
  for (int peer = 0; peer < group_->world(); ++peer) {
    const Offer offer = read(answers[peer]);
    check_same_purpose(group_->rank(), purpose, peer, offer.purpose);
    numbers.push_back(offer.number);
  }
  return numbers;
}

void TcpTransport::leave() noexcept {
  group_->leave();
  // The process may be about to end, and with it what its kernel has not sent yet.
  group_->mesh()->deliver();
}

}  // namespace plait::comm::tcp
