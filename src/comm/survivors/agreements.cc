#include "comm/survivors/agreements.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "comm/core/patience.h"

namespace plait::comm {

using base::sentence;

void refuse_given_up(int rank, Nanoseconds patience) {
  throw Error(Code::timeout,
              sentence("survivors: the others go on without rank ", rank, ", which had not joined ",
                       "them within ", base::show_duration(patience)),
              rank);
}

}  // namespace plait::comm

namespace plait::comm::tcp {

using base::sentence;
using Parts = Regrouping::Parts;

namespace {

// The first line of a message: its kind, the agreement's number, and for an answer its coordinator.
constexpr std::string_view kJoined = "joined";
constexpr std::string_view kPart = "part";
constexpr std::string_view kAnswer = "answer";
constexpr std::string_view kRefusal = "refusal";
constexpr std::string_view kWithdrawn = "withdrawn";
constexpr std::string_view kCutOff = "cut off";

// A rank that takes part says so again and again. One that has said nothing for its patience, and
// this much longer, is lost.
constexpr Nanoseconds kBetweenBeats = 100 * base::kMillisecond;
constexpr Nanoseconds kGrace = base::kSecond;

// A process that ends closes its connections one after another, and a busy machine may take this
// long from one to the next.
constexpr Nanoseconds kUntilClosed = 500 * base::kMillisecond;

// One that takes part, but brings nothing, waits for others: it and these have no more than their
// patience each.
constexpr int kMostPatiences = 3;

std::string show_ranks(const std::vector<int>& ranks) {
  return sentence(ranks.size() > 1 ? "ranks " : "rank ", base::show_list(ranks));
}

}  // namespace

Agreements::Agreements(Group& group, AgreementMessages& messages)
    : group_(group),
      messages_(messages),
      peers_(group.world()),
      has_withdrawn_(group.world()),
      has_cut_off_(group.world()),
      joined_(group.world()) {}

// A line for each rank: what it brought after a '+', or '-'. A refusal has its sentence before
// them, and says only which ranks it is for.
std::string Agreements::write(int number, const Answer& answer) {
  const bool is_refused = !answer.refusal.empty();
  std::string text =
      sentence(is_refused ? kRefusal : kAnswer, ' ', number, ' ', answer.coordinator);
  if (is_refused) text += '\n' + answer.refusal;
  for (const auto& part : answer.parts) {
    text += part ? "\n+" : "\n-";
    if (part && !is_refused) text += *part;
  }
  return text;
}

std::optional<Agreements::Answer> Agreements::read_answer(
    const std::vector<std::string_view>& lines, int world) {
  const auto words = base::split(lines[0], ' ');
  const auto coordinator = words.size() == 3 ? base::parse_int(words[2]) : std::nullopt;
  if (!coordinator || *coordinator < 0 || *coordinator >= world) return std::nullopt;
  Answer answer = {.coordinator = static_cast<int>(*coordinator), .refusal = {}, .parts = {}};
  const std::size_t first = words[0] == kRefusal ? 2 : 1;
  if (lines.size() != static_cast<std::size_t>(world) + first) return std::nullopt;
  if (words[0] == kRefusal) answer.refusal = lines[1];
  for (std::size_t line = first; line < lines.size(); ++line) {
    const bool is_there = lines[line].starts_with('+');
    answer.parts.push_back(is_there ? std::optional(std::string(lines[line].substr(1)))
                                    : std::nullopt);
  }
  return answer;
}

bool Agreements::receive(int peer, const std::string& text) {
  const auto lines = base::split(text, '\n');
  const auto words = base::split(lines[0], ' ');
  const std::lock_guard lock(mutex_);
  if (words[0] == kWithdrawn) {
    has_withdrawn_[peer] = true;
    return true;
  }
  if (lines[0] == kCutOff) {
    has_cut_off_[peer] = true;
    return true;
  }
  const auto number = words.size() < 2 ? std::nullopt : base::parse_int(words[1]);
  if (!number || *number < 1 || *number > INT32_MAX) return false;
  Agreement& agreement = agreements_[static_cast<int>(*number)];
  if (words[0] == kJoined) {
    joined_[peer][static_cast<int>(*number)] = base::now();
    return true;
  }
  if (words[0] == kPart) {
    if (lines.size() != 3) return false;
    for (const std::string_view word : base::split(lines[2], ' ')) {
      const auto other = static_cast<int>(base::parse_int(word).value_or(peer));
      agreement.apart.insert(std::minmax(peer, other));
    }
    agreement.parts[peer] = lines[1];
    return true;
  }
  auto answer = words[0] == kAnswer || words[0] == kRefusal ? read_answer(lines, group_.world())
                                                            : std::nullopt;
  if (!answer) return false;
  if (agreement.answer) return true;
  // Beyond a cable that was broken for a while, others may have been refused: these may go on.
  if (!answer->refusal.empty() && !answer->parts[group_.rank()]) return true;
  // A coordinator that has taken an answer from a lower one gives it as its own.
  if (peer == agreement.least) answer->coordinator = std::max(answer->coordinator, peer);
  if (answer->coordinator >= agreement.least) {
    agreement.answer = std::move(answer);
  } else {
    agreement.not_taken[peer] = std::move(*answer);
  }
  return true;
}

void Agreements::announce_all(const std::string& text) noexcept {
  for (int peer = 0; peer < group_.world(); ++peer) {
    if (peer != group_.rank()) messages_.send_agreement(peer, text);
  }
}

std::optional<Agreements::Answer> Agreements::taken() {
  const std::lock_guard lock(mutex_);
  return agreements_[number_].answer;
}

// The kernel of a process that ends closes the carrier's connection and this one in any order.
// Until both are closed, the process would seem to be alive beyond a broken cable.
bool Agreements::may_still_close(int peer, const AgreementMessages::PeerState& state) {
  if (!state.is_only_chunks) return false;
  Nanoseconds& since = peers_[peer].without_chunks_since;
  const Nanoseconds now = base::now();
  if (since == 0) since = now;
  return now - since < kUntilClosed;
}

// All that a peer sent before its connection ended has been received by then.
void Agreements::note_losses() {
  for (int peer = 0; peer < group_.world(); ++peer) {
    if (peer == group_.rank()) continue;
    const auto state = messages_.look_at(peer);
    const bool is_cut_off = state.is_lost && !may_still_close(peer, state);
    const std::lock_guard lock(mutex_);
    const bool has_left = state.has_left || has_withdrawn_[peer];
    Peer& known = peers_[peer];
    known.is_lost = known.is_lost || is_cut_off || has_left || has_cut_off_[peer];
    known.is_gone = known.is_gone || state.has_ended || has_left;
    known.is_silent = known.is_silent || (is_cut_off && !state.has_ended);
  }
}

// A peer beyond a cable that was broken for a while may have noticed nothing: then it would wait
// for this rank, which no longer counts on it.
void Agreements::announce_cut_off() {
  for (int peer = 0; peer < group_.world(); ++peer) {
    Peer& known = peers_[peer];
    if (!known.is_silent || known.was_told) continue;
    known.was_told = true;
    messages_.send_agreement(peer, std::string(kCutOff));
  }
}

std::string Agreements::list_silent() const {
  std::string list;
  for (int peer = 0; peer < group_.world(); ++peer) {
    if (peers_[peer].is_silent) list += sentence(list.empty() ? "" : " ", peer);
  }
  return list;
}

int Agreements::coordinator() const {
  int rank = 0;
  while (rank != group_.rank() && peers_[rank].is_lost) ++rank;
  return rank;
}

// From now on this rank takes no answer of a lower coordinator. False: it has one already.
bool Agreements::follow(int coordinator) {
  const std::lock_guard lock(mutex_);
  Agreement& agreement = agreements_[number_];
  agreement.least = coordinator;
  return !agreement.answer;
}

// True if a rank has not come since `since`, or has come and says no more that it is here.
bool Agreements::is_late(int peer, Nanoseconds since, Nanoseconds patience, int most) const {
  const auto found = joined_[peer].find(number_);
  const Nanoseconds last = found == joined_[peer].end() ? since : found->second + kGrace;
  const Nanoseconds longest = since + most * patience + kGrace;
  return base::now() >= std::min(std::max(since, last) + patience, longest);
}

// For a coordinator: answers if all that are not lost have told what they bring, or that they have
// an answer. Late ones count as lost.
void Agreements::decide(const std::string& mine, Nanoseconds since, Nanoseconds patience) {
  const std::lock_guard lock(mutex_);
  Agreement& agreement = agreements_[number_];
  if (agreement.answer) return;
  for (int peer = 0; peer < group_.world(); ++peer) {
    const bool has_told = agreement.parts.contains(peer) || agreement.not_taken.contains(peer);
    if (peer == group_.rank() || peers_[peer].is_lost || has_told) continue;
    if (!is_late(peer, since, patience, kMostPatiences)) return;
    peers_[peer].is_lost = true;
  }
  agreement.answer = decision(agreement, mine);
}

Agreements::Answer Agreements::decision(const Agreement& agreement, const std::string& mine) const {
  for (const auto& [peer, answer] : agreement.not_taken) {
    if (peers_[peer].is_lost) continue;
    Answer same = answer;
    same.coordinator = group_.rank();
    return same;
  }
  Answer answer = {.coordinator = group_.rank(), .refusal = {}, .parts = Parts(group_.world())};
  answer.parts[group_.rank()] = mine;
  // No group can have two ranks of which one counts the other as lost: the higher one is left out.
  for (const auto& [peer, part] : agreement.parts) {
    bool fits = !peers_[peer].is_lost;
    for (int lower = 0; lower < peer; ++lower)
      fits = fits && !(answer.parts[lower] && agreement.apart.contains({lower, peer}));
    if (fits) answer.parts[peer] = part;
  }
  check_majority(answer);
  return answer;
}

// Ranks that are not known to have ended may come to an answer of their own, beyond a broken cable.
void Agreements::check_majority(Answer& answer) const {
  std::vector<int> here;
  std::vector<int> elsewhere;
  for (int rank = 0; rank < group_.world(); ++rank) {
    if (answer.parts[rank]) {
      here.push_back(rank);
    } else if (!peers_[rank].is_gone) {
      elsewhere.push_back(rank);
    }
  }
  if (elsewhere.size() < here.size()) return;
  const bool is_half = elsewhere.size() == here.size();
  if (is_half && here.front() < elsewhere.front()) return;
  answer.refusal =
      sentence("survivors: ", show_ranks(here), " can't go on: ", show_ranks(elsewhere),
               " may be alive beyond a broken connection, and ",
               is_half ? (elsewhere.size() == 1 ? "has" : "have") : "are",
               is_half ? " the lowest rank of two halves" : " more");
}

Parts Agreements::agree(const std::string& mine, Nanoseconds patience) {
  ++number_;
  const int rank = group_.rank();
  Nanoseconds beat_at = 0;
  int follows = -1;
  std::string told;  // to the rank that is followed
  Nanoseconds since = 0;
  std::optional<Answer> answer;
  Patience polls(group_.policy(), kAtOnce);  // each peer's beats decide how long to wait
  Nanoseconds turn = base::now();
  for (;;) {
    const std::uint64_t seen = messages_.news();
    messages_.move();
    answer = taken();
    if (answer) break;
    const Nanoseconds now = base::now();
    // Time in which this process did not run makes no peer late.
    since += std::max<Nanoseconds>(now - turn - Deadline::kLongestTurn, 0);
    turn = now;
    if (polls.must_poll_peers(now, group_)) {
      note_losses();
      announce_cut_off();
      if (now >= beat_at) {
        announce_all(sentence(kJoined, ' ', number_));
        beat_at = now + kBetweenBeats;
      }
    }
    if (coordinator() != follows) {
      follows = coordinator();
      since = now;
      if (!follow(follows)) continue;
      told.clear();
    }
    if (follows != rank) {
      std::string part = sentence(kPart, ' ', number_, '\n', mine, '\n', list_silent());
      if (part != told) messages_.send_agreement(follows, part);
      told = std::move(part);
    }
    if (follows == rank) {
      decide(mine, since, patience);
      if (taken()) continue;
    } else {
      const std::lock_guard lock(mutex_);
      // The coordinator may have begun one patience later, and waits as long for others.
      peers_[follows].is_lost = is_late(follows, since, patience, kMostPatiences + 1);
    }
    messages_.sleep(polls.poll_peers_at(), seen);
  }
  announce_all(write(number_, *answer));
  if (!answer->refusal.empty()) throw Error(Code::peer_lost, answer->refusal);
  if (!answer->parts[rank]) refuse_left_out(*answer, patience);
  for (int peer = 0; peer < group_.world(); ++peer) {
    if (!answer->parts[peer]) peers_[peer].is_lost = true;
  }
  return std::move(answer->parts);
}

void Agreements::refuse_left_out(const Answer& answer, Nanoseconds patience) {
  std::vector<int> going_on;
  bool is_cut_off = false;
  const std::lock_guard lock(mutex_);
  for (int peer = 0; peer < group_.world(); ++peer) {
    if (!answer.parts[peer]) continue;
    going_on.push_back(peer);
    is_cut_off = is_cut_off || has_cut_off_[peer] || peers_[peer].is_silent;
  }
  if (!is_cut_off) refuse_given_up(group_.rank(), patience);
  base::fail(Code::peer_lost, "survivors: ", show_ranks(going_on),
             going_on.size() > 1 ? " go" : " goes", " on without rank ", group_.rank(),
             ", to which the connection was broken for a while");
}

bool Agreements::has_moved_on(int peer) {
  const std::lock_guard lock(mutex_);
  return has_withdrawn_[peer] || !joined_[peer].empty();
}

// The ranks that were left out may take nothing any more, and nothing waits for that.
void Agreements::conclude() noexcept {
  is_concluded_.store(true, std::memory_order_relaxed);
  for (int peer = 0; peer < group_.world(); ++peer) {
    if (peers_[peer].is_lost) messages_.give_up_on(peer);
  }
}

void Agreements::withdraw() noexcept {
  if (!is_concluded_.load(std::memory_order_relaxed)) announce_all(std::string(kWithdrawn));
}

}  // namespace plait::comm::tcp
