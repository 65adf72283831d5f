#include "comm/core/blaming_group.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "comm/core/patience.h"

namespace plait::comm {

using base::sentence;

namespace {

// How often the ranks are looked at after the first time. One that says it waits and does not move,
// or that says nothing, has perhaps no processor, which passes.
constexpr int kMostLooks = 5;

// How long a rank that waits takes to move, and one that is asked to answer.
constexpr Nanoseconds kForAnswers = 100 * base::kMillisecond;

}  // namespace

// Asks where all are. One that does not answer waits for no rank, as far as can be told. Goes on
// publishing its wait meanwhile: other ranks may search for the culprit too.
std::vector<Whereabouts> BlamingGroup::look(const Awaited& awaited, PublishedWait& published,
                                            bool waits_for_answers) {
  const Nanoseconds start = base::now();
  waits_for_answers |= inquire();
  const Nanoseconds until = start + kForAnswers;
  while (waits_for_answers && base::now() < until && !failed()) {
    published.publish(awaited);
    sleep_until(std::min(until, base::now() + PollTimes{}.between), [] { return false; });
  }
  std::vector<Whereabouts> all;
  for (const Account& one : accounts())
    all.push_back(one.seen_at >= start ? one.where : Whereabouts{});
  return all;
}

// A waiting rank moves while the answers are waited for. One that waits in another communicator may
// give up there before this rank has done searching.
BlamingGroup::Culprit BlamingGroup::find_culprit(const Awaited& awaited, PublishedWait& published) {
  Nanoseconds last_asked = base::now();
  const auto before = look(awaited, published, false);
  const auto culprit_of = [&](int rank) {
    const Account account = accounts()[rank];
    return Culprit{.rank = rank, .account = account, .is_known = account.seen_at >= last_asked};
  };
  Culprit culprit = culprit_of(awaited.peer);
  for (int looks = 0; looks < kMostLooks && !failed(); ++looks) {
    const Nanoseconds asked = base::now();
    const auto after = look(awaited, published, true);
    const Culprit late = culprit_of(find_late(before, after, awaited.peer, rank()));
    const bool was_elsewhere =
        culprit.rank == late.rank && culprit.account.where.elsewhere.waits != 0;
    if (!was_elsewhere || late.account.where.elsewhere.waits != 0) culprit = late;
    if (late.account.seen_at >= asked && !says_it_waits(after[late.rank])) break;
    last_asked = asked;
  }
  return culprit;
}

std::string BlamingGroup::describe_late(const Culprit& culprit) {
  return culprit.is_known
             ? describe_doing(culprit.rank, culprit.account.where)
             : sentence("rank ", culprit.rank, " is in no call of this group, or stopped");
}

// The wait stays published until all ranks know why it ends: a peer that searches for the culprit
// at the same time would else find this rank waiting for no other.
void BlamingGroup::give_up(const Awaited& awaited, base::FunctionRef<bool()> ready) {
  PublishedWait published(*this);
  const bool waits = awaited.peer != Error::kNoRank && awaited.peer != rank();
  const Culprit culprit = waits ? find_culprit(awaited, published)
                                : Culprit{.rank = rank(), .account = {}, .is_known = true};
  raise_if_failed();
  if (ready()) return;
  std::string blame;
  if (waits && culprit.rank != awaited.peer)
    blame = sentence("; in the end all wait for rank ", culprit.rank);
  blame += show_process(culprit.rank);
  if (culprit.rank != rank()) blame += "; " + describe_late(culprit);
  fail_and_raise(
      {Code::timeout, culprit.rank,
       sentence(describe(awaited, rank()), " for ", base::show_duration(policy().timeout), blame)});
}

void BlamingGroup::compare_with(int peer, const Tag& theirs) {
  const std::string mismatch = announcer_.find_mismatch(rank(), peer, theirs);
  if (!mismatch.empty()) fail_and_raise({Code::mismatch, peer, mismatch});
}

}  // namespace plait::comm
