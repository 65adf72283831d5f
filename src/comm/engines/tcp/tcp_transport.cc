#include "comm/engines/tcp/tcp_transport.h"

#include <optional>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "comm/core/mailbox.h"
#include "comm/engines/tcp/tcp_slots.h"

namespace plait::comm::tcp {
namespace {

// A rank's text for an agreement, such as "14 - mailbox of 2 slots".
struct Answer {
  std::uint32_t number;
  std::string memory;
  std::string purpose;
};

Answer read(const std::string& text) {
  const auto words = base::split(text, ' ');
  const auto number = words.size() < 3 ? std::nullopt : base::parse_int(words[0]);
  // A rank in another call sends something else.
  if (!number || *number < 0 || *number > UINT32_MAX)
    return {.number = 0, .memory = "-", .purpose = "call of another kind"};
  return {.number = static_cast<std::uint32_t>(*number),
          .memory = std::string(words[1]),
          .purpose = text.substr(words[0].size() + words[1].size() + 2)};
}

}  // namespace

TcpTransport::TcpTransport(std::shared_ptr<TcpGroup> group) : group_(std::move(group)) {}

std::vector<std::string> TcpTransport::all_gather(const std::string& mine) {
  return group_->all_gather(mine);
}

// An error that one rank alone meets with ends the group, as it does when a mailbox is made.
void TcpTransport::meet_near(const std::string& host) try {
  group_->mesh()->near().meet(host, [&](const std::string& mine) { return all_gather(mine); });
} catch (const Error& error) {
  if (group_->was_interrupted()) throw;
  group_->fail_and_raise(failure_of(error));
}

// Chunks may come as soon as the other ranks know the number, so the memory for them is made first.
std::unique_ptr<SlotTransport> TcpTransport::make_slots(const MailboxDesc& desc) {
  auto slots = std::make_unique<TcpSlots>(group_, desc);
  const std::size_t bytes = MappedChannels::bytes_for(desc, slots->near_ranks());
  const bool shares = slots->near_ranks() > 1;
  const SharedRegion lent = shares ? SharedRegion(bytes) : SharedRegion();
  const auto contributions =
      agree({.number = slots->number(), .memory = lent.offer()}, comm::describe(desc));
  std::vector<std::uint32_t> numbers;
  numbers.reserve(contributions.size());
  for (const Contribution& one : contributions) numbers.push_back(one.number);
  slots->set_peers(std::move(numbers),
                   shares ? map_memory(contributions, lent, bytes)
                          : std::vector<base::Region>{base::Region::allocate(bytes)});
  // No rank takes back what it lends before the others have mapped it.
  if (group_->mesh()->near().has_two_of(group_->members().processes)) all_gather("mapped");
  return slots;
}

// If it fails, the others hear of it before this rank takes back what it lends, which would look
// like a failure of this rank's memory to them.
std::vector<base::Region> TcpTransport::map_memory(const std::vector<Contribution>& contributions,
                                                   const SharedRegion& mine,
                                                   std::size_t bytes) try {
  const HostPeers& near = group_->mesh()->near();
  std::vector<base::Region> regions;
  for (int peer = 0; peer < group_->world(); ++peer) {
    const int process = group_->members().processes[peer];
    if (peer == group_->rank()) {
      regions.push_back(mine.memory());
    } else if (near.has(process)) {
      regions.push_back(near.map(process, contributions[peer].memory, bytes));
    }
  }
  return regions;
} catch (const Error& error) {
  const int rank = group_->rank();
  group_->mesh()->move_surely();
  group_->fail_and_raise({.code = error.code(),
                          .culprit = rank,
                          .sentence = base::sentence("rank ", rank, ": ", error.what())});
}

std::shared_ptr<TcpGroup> TcpTransport::make_group(const std::vector<int>& members) const {
  Members chosen = {.processes = {}, .numbers = {}, .me = 0};
  for (const int member : members) {
    if (member == group_->rank()) chosen.me = chosen.size();
    chosen.processes.push_back(group_->members().processes[member]);
  }
  return std::make_shared<TcpGroup>(group_->mesh(), std::move(chosen), group_->policy());
}

std::unique_ptr<Transport> TcpTransport::subgroup(const std::vector<int>& members) {
  const auto part = members.empty() ? nullptr : make_group(members);
  const auto contributions =
      agree({.number = part == nullptr ? 0 : part->number(), .memory = "-"}, "group");
  if (part == nullptr) return nullptr;
  std::vector<std::uint32_t> theirs;
  theirs.reserve(members.size());
  for (const int member : members) theirs.push_back(contributions[member].number);
  part->set_numbers(std::move(theirs));
  part->descend_from(group_, members);
  return std::make_unique<TcpTransport>(part);
}

Regrouping::Parts TcpTransport::agree(const std::string& mine, Nanoseconds patience) {
  return group_->agreements().agree(mine, patience);
}

std::unique_ptr<Transport> TcpTransport::regroup(const std::vector<int>& members,
                                                 Exchange exchange) {
  const auto part = make_group(members);
  part->set_timeout(part->policy().connect_timeout);
  std::vector<std::uint32_t> theirs;
  theirs.reserve(members.size());
  for (const std::string& number : exchange(std::to_string(part->number())))
    theirs.push_back(static_cast<std::uint32_t>(base::parse_int(number).value_or(0)));
  part->set_numbers(std::move(theirs));
  return std::make_unique<TcpTransport>(part);
}

void TcpTransport::conclude() noexcept { group_->agreements().conclude(); }

std::string TcpTransport::route_to(int peer) const {
  const int process = group_->members().processes[peer];
  const HostPeers& near = group_->mesh()->near();
  if (near.has(process)) return "shm: memory of this host that both ranks map";
  const std::string route = group_->mesh()->route_to(process);
  const std::string why = near.why_far(process);
  return why.empty() || route.empty() ? route : route + "; no shared memory, because " + why;
}

std::vector<TcpTransport::Contribution> TcpTransport::agree(const Contribution& mine,
                                                            const std::string& purpose) {
  const auto answers = all_gather(base::sentence(mine.number, ' ', mine.memory, ' ', purpose));
  std::vector<Contribution> contributions;
  for (int peer = 0; peer < group_->world(); ++peer) {
    const Answer answer = read(answers[peer]);
    check_same_purpose(group_->rank(), purpose, peer, answer.purpose);
    contributions.push_back({.number = answer.number, .memory = answer.memory});
  }
  return contributions;
}

void TcpTransport::leave() noexcept {
  group_->leave();
  // The process may be about to end, and with it what its kernel has not sent yet.
  group_->mesh()->deliver(group_->failed());
}

}  // namespace plait::comm::tcp
