// Which rank is blamed at a deadline: ranks over TCP ask each other what they are doing.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/text.h"
#include "comm/control/tcp_group.h"
#include "comm/core/operation.h"

namespace plait::comm::tcp {

using base::sentence;

namespace {

// How often a rank that waits asks its peers which call they are in, how long it waits for answers
// when its deadline has passed, and how often it then asks again.
constexpr Nanoseconds kBetweenInquiries = 500 * base::kMillisecond;
constexpr Nanoseconds kForAnswers = 100 * base::kMillisecond;
constexpr int kMostInquiries = 3;

// A rank that waits for answers says as often as in any wait that it does.
constexpr Nanoseconds kBetweenSigns = PollTimes{}.between;

}  // namespace

// Clocks of hosts differ: a moment travels as the time that has passed since.
void TcpGroup::answer(int peer) {
  Whereabouts where = read(shown_);
  if (where.sign.at != 0) where.sign.at = std::max<Nanoseconds>(base::now() - where.sign.at, 1);
  const std::lock_guard lock(mutex_);
  if (members_.numbers.empty()) return;
  std::string text(sizeof(where), '\0');
  std::memcpy(text.data(), &where, sizeof(where));
  mesh_->reply(members_.processes[peer], {.kind = Kind::answer, .receiver = members_.numbers[peer]},
               text);
}

bool TcpGroup::note_answer(int peer, const std::string& text) {
  Whereabouts where;
  if (text.size() != sizeof(where)) return false;
  std::memcpy(&where, text.data(), sizeof(where));
  const Nanoseconds now = base::now();
  if (where.has_call > 1 || where.call.operation > kLastOperation) return false;
  if (where.elsewhere.operation > kLastOperation || where.elsewhere.peer >= world()) return false;
  if (where.sign.doing > Sign::Doing::product || where.sign.at < 0 || where.sign.at > now)
    return false;
  if (where.sign.at != 0) where.sign.at = now - where.sign.at;
  const std::lock_guard lock(mutex_);
  answers_[peer] = {.where = where, .at = now};
  return true;
}

void TcpGroup::inquire() {
  inquired_at_.store(base::now(), std::memory_order_relaxed);
  for (int peer = 0; peer < world(); ++peer) {
    if (peer == rank() || has_left(peer)) continue;
    mesh_->send(members_.processes[peer],
                {.kind = Kind::inquiry, .receiver = members_.numbers[peer]}, nullptr, nullptr,
                Mesh::Urgency::now);
  }
}

std::vector<TcpGroup::Answer> TcpGroup::answers() const {
  const std::lock_guard lock(mutex_);
  return answers_;
}

// A peer may be in another call than this rank was, or is: then one of them waits for a chunk that
// will never come, and the two tags say why.
void TcpGroup::compare_answers() {
  const std::vector<Answer> heard = answers();
  for (int peer = 0; peer < world(); ++peer) {
    if (heard[peer].where.has_call == 0) continue;
    const std::string mismatch = announcer_.find_mismatch(rank(), peer, heard[peer].where.call);
    if (!mismatch.empty()) fail_and_raise({Code::mismatch, peer, mismatch});
  }
  if (base::now() - inquired_at_.load(std::memory_order_relaxed) > kBetweenInquiries) inquire();
}

// Asks each rank for its whereabouts. One that does not answer soon waits for no rank, as far as
// can be told.
std::vector<Whereabouts> TcpGroup::ask_all(const Awaited& awaited, PublishedWait& published) {
  const Nanoseconds start = base::now();
  inquire();
  const Nanoseconds until = start + kForAnswers;
  while (base::now() < until && !failed()) {
    published.publish(awaited);
    sleep_until(std::min(until, base::now() + kBetweenSigns), [] { return false; });
  }
  std::vector<Whereabouts> all;
  for (const Answer& answer : answers())
    all.push_back(answer.at >= start ? answer.where : Whereabouts{});
  all[rank()] = read(shown_);
  return all;
}

// One that says it waits and does not move, or that says nothing, has perhaps no processor, which
// passes; so it is asked again. One that waits in another communicator may give up there meanwhile.
TcpGroup::Culprit TcpGroup::find_culprit(const Awaited& awaited, PublishedWait& published) {
  const auto before = ask_all(awaited, published);
  Culprit culprit = {.rank = awaited.peer, .answer = answers()[awaited.peer]};
  for (int attempt = 0; attempt < kMostInquiries && !failed(); ++attempt) {
    const Nanoseconds asked = base::now();
    const auto after = ask_all(awaited, published);
    const int late = find_late(before, after, awaited.peer, rank());
    const Answer answer = answers()[late];
    const bool was_elsewhere = culprit.rank == late && culprit.answer.where.elsewhere.waits != 0;
    if (!was_elsewhere || answer.where.elsewhere.waits != 0)
      culprit = {.rank = late, .answer = answer};
    const bool has_answered = late == rank() || answer.at >= asked;
    if (has_answered && !says_it_waits(after[late])) break;
  }
  return culprit;
}

std::string TcpGroup::describe_late(const Culprit& culprit) const {
  const Answer& answer = culprit.answer;
  const int inquiries = answer.where.elsewhere.waits != 0 ? 2 + kMostInquiries : 2;
  const bool is_new = base::now() - answer.at < inquiries * kForAnswers;
  return is_new ? describe_doing(culprit.rank, answer.where)
                : sentence("rank ", culprit.rank, " is in no call of this group, or stopped");
}

// The wait stays published until all ranks know why it ends: a peer that searches for the culprit
// at the same time would else find this rank waiting for no other.
void TcpGroup::give_up(const Awaited& awaited, base::FunctionRef<bool()> ready) {
  PublishedWait published(*this);
  const bool waits = awaited.peer != Error::kNoRank && awaited.peer != rank();
  const Culprit found =
      waits ? find_culprit(awaited, published) : Culprit{.rank = rank(), .answer = {}};
  const int culprit = found.rank;
  raise_if_failed();
  if (ready()) return;
  std::string blame;
  if (waits && culprit != awaited.peer)
    blame = sentence("; in the end all wait for rank ", culprit);
  if (culprit != rank()) {
    blame +=
        sentence(" (", mesh_->name_of(members_.processes[culprit]), "); ", describe_late(found));
  }
  fail_and_raise(
      {Code::timeout, culprit,
       sentence(describe(awaited, rank()), " for ", base::show_duration(policy().timeout), blame)});
}

}  // namespace plait::comm::tcp
