// Agreements of the ranks that are left when a group has failed, in the memory that all have
// mapped: see Standing, and docs/design/0018.
#include "base/check.h"
#include "base/text.h"
#include "comm/core/deadline.h"
#include "comm/mapped/mapped_group.h"

namespace plait::comm {

using base::sentence;

namespace {

constexpr Nanoseconds kPollInterval = 2 * base::kMillisecond;

}  // namespace

static_assert(Regrouping::kMostBytes <= Standing::kMostBytes);

void refuse_given_up(int rank, Nanoseconds patience) {
  throw Error(Code::timeout,
              sentence("survivors: the others go on without rank ", rank, ", which had not joined ",
                       "them within ", base::show_duration(patience)),
              rank);
}

bool MappedGroup::has_all_parts() const {
  for (int peer = 0; peer < world(); ++peer) {
    if (page(peer).standing.part(agreements_) == Standing::Part::not_yet) return false;
  }
  return true;
}

Regrouping::Parts MappedGroup::agree(const std::string& mine, Nanoseconds patience) {
  ++agreements_;
  if (!page(rank()).standing.bring(agreements_, mine)) refuse_given_up(rank(), patience);
  for (int peer = 0; peer < world(); ++peer) ring(peer);
  Deadline deadline(patience);
  while (!has_all_parts()) {
    interrupt_if_asked(nullptr);
    const bool is_late = deadline.is_over();
    for (int peer = 0; peer < world(); ++peer) {
      Standing& standing = page(peer).standing;
      if (standing.part(agreements_) != Standing::Part::not_yet) continue;
      // A rank that has died or left brings nothing after this check.
      if (!is_late && !has_died(peer) && !has_left(peer)) continue;
      standing.give_up(agreements_);
      for (int other = 0; other < world(); ++other) ring(other);
    }
    page(rank()).doorbell.sleep(kPollInterval, [this] { return has_all_parts(); });
  }
  Regrouping::Parts parts(world());
  for (int peer = 0; peer < world(); ++peer) {
    const Standing& standing = page(peer).standing;
    if (standing.part(agreements_) == Standing::Part::brought)
      parts[peer] = standing.text(agreements_);
  }
  return parts;
}

// The agreement after this one is about whether the members have made the new group. One that has
// not brings a text that begins with '-'.
void MappedGroup::check_regrouping(const std::vector<int>& members) {
  interrupt_if_asked(nullptr);
  for (const int member : members) {
    const Standing& standing = page(member).standing;
    const bool has_failed = standing.part(agreements_ + 1) == Standing::Part::brought &&
                            standing.text(agreements_ + 1).starts_with('-');
    if (!has_failed && !has_died(member)) continue;
    throw Error(Code::peer_lost,
                sentence("survivors: rank ", member, " (", rendezvous_->describe(member), ") has ",
                         has_failed ? "not made the new group" : "died"),
                member);
  }
}

void MappedGroup::withdraw() noexcept {
  page(rank()).standing.give_up(agreements_ + 1);
  for (int peer = 0; peer < world(); ++peer) ring(peer);
}

}  // namespace plait::comm
