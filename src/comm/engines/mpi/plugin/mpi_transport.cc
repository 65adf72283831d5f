#include "comm/engines/mpi/plugin/mpi_transport.h"

#include <cstdint>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "comm/core/mailbox.h"
#include "comm/core/patience.h"
#include "comm/engines/mpi/plugin/all_gather.h"
#include "comm/engines/mpi/plugin/deferred_release.h"
#include "comm/engines/mpi/plugin/mpi_slots.h"

namespace plait::comm::mpi {
namespace {

// A member's text for an agreement, such as "14 3 mailbox of 2 slots".
struct Offer {
  int first_tag;
  int comm_dup;
  std::string purpose;
};

std::string write(const Offer& offer) {
  return base::sentence(offer.first_tag, ' ', offer.comm_dup, ' ', offer.purpose);
}

Offer read(const std::string& text) {
  const auto words = base::split(text, ' ');
  const auto tag = words.size() < 3 ? std::nullopt : base::parse_int(words[0]);
  const auto comm_dup = words.size() < 3 ? std::nullopt : base::parse_int(words[1]);
  // A rank in another call sends something else.
  if (!tag || !comm_dup) return {.first_tag = 0, .comm_dup = 0, .purpose = "call of another kind"};
  return {.first_tag = static_cast<int>(*tag),
          .comm_dup = static_cast<int>(*comm_dup),
          .purpose = text.substr(words[0].size() + words[1].size() + 2)};
}

}  // namespace

MpiTransport::MpiTransport(std::shared_ptr<MpiGroup> group) : group_(std::move(group)) {}

MpiTransport::~MpiTransport() { release_later(std::move(group_)); }

std::unique_ptr<SlotTransport> MpiTransport::make_slots(const MailboxDesc& desc) {
  PLAIT_CHECK(desc.slot_bytes <= INT32_MAX - sizeof(ChunkHeader),
              "make_mailbox: MPI sends at most ", INT32_MAX, " bytes at once, not ",
              desc.slot_bytes, " and a header");
  release_finished();
  const Members members = agree(desc.slots, comm::describe(desc));
  return std::make_unique<MpiSlots>(group_, members, desc);
}

std::unique_ptr<Transport> MpiTransport::subgroup(const std::vector<int>& members) {
  release_finished();
  const Members all = agree(kGroupTags, "group");
  if (members.empty()) return nullptr;
  Members chosen = {
      .all = all.all, .processes = {}, .first_tags = {}, .local_processes = all.local_processes};
  for (const int member : members) {
    if (member == all.me) chosen.me = chosen.size();
    chosen.processes.push_back(all.processes[member]);
    chosen.first_tags.push_back(all.first_tags[member]);
  }
  auto part =
      std::make_shared<MpiGroup>(std::move(chosen), group_->local_processes(), group_->policy());
  part->split_off(group_, members);
  return std::make_unique<MpiTransport>(std::move(part));
}

Members MpiTransport::agree(int count, const std::string& purpose) {
  Members members = group_->members();
  const Offer mine = {
      .first_tag = reserve_tags(count), .comm_dup = propose_comm_dup(), .purpose = purpose};
  const auto answers = all_gather(write(mine));
  for (int peer = 0; peer < members.size(); ++peer) {
    const Offer theirs = read(answers[peer]);
    check_same_purpose(members.me, purpose, peer, theirs.purpose);
    members.first_tags[peer] = theirs.first_tag;
    if (peer == 0) members.comm_dup = theirs.comm_dup;
  }
  return members;
}

// A group may fail while its set-up is under way here and done elsewhere. A set-up that all have
// done their part for is brought to its end, so that it fails for all or none.
std::vector<std::string> MpiTransport::all_gather(const std::string& mine) {
  const Members& members = group_->members();
  Patience patience(group_->policy(), kAtOnce);
  group_->begin_set_up();
  Nanoseconds failed_at = 0;
  const auto check_group = [&](Nanoseconds now, const std::vector<int>& missing) {
    group_->poll_peers();
    refuse_for_leavers(missing);
    if (!group_->failed()) return;
    if (failed_at == 0) failed_at = now;
    if (now - failed_at > MpiGroup::kUnderWay || group_->can_never_bring(missing)) group_->raise();
  };
  const auto watch = [&](const std::vector<int>& missing) {
    static_cast<void>(group_->find_missing_set_ups());
    const Nanoseconds now = base::now();
    const auto& advance = group_->policy().advance;
    if (advance && advance()) patience.renew(now);
    if (patience.must_poll_peers(now, *group_)) check_group(now, missing);
    if (patience.is_over(now))
      refuse_for_missing(members.me, members.size(), missing, group_->policy().timeout);
  };
  auto all = mpi::all_gather(members, mine, watch);
  // The notices were sent first, so that they are here or come at once.
  for (std::vector<int> missing; !(missing = group_->find_missing_set_ups()).empty();)
    watch(missing);
  group_->end_set_up();
  return all;
}

void MpiTransport::refuse_for_leavers(const std::vector<int>& missing) const {
  for (const int peer : missing) {
    if (!group_->is_long_gone(peer)) continue;
    throw Error(Code::peer_lost,
                base::sentence("rank ", group_->rank(), " waits to meet rank ", peer,
                               ", which has left the group"),
                peer);
  }
}

}  // namespace plait::comm::mpi
