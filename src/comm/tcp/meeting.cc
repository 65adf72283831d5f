#include "comm/tcp/meeting.h"

#include <poll.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/env.h"
#include "base/hmac.h"
#include "base/random.h"
#include "base/text.h"
#include "comm/group.h"
#include "comm/interruption.h"
#include "comm/same_transport.h"
#include "comm/tcp/address.h"
#include "comm/tcp/call.h"
#include "comm/tcp/callers.h"
#include "comm/tcp/cards.h"
#include "comm/tcp/end_watch.h"
#include "comm/tcp/failure_frame.h"
#include "comm/tcp/handshake.h"
#include "comm/tcp/identity.h"
#include "comm/tcp/lines.h"
#include "comm/tcp/rendezvous.h"

namespace plait::comm::tcp {

using base::Nanoseconds;
using base::sentence;

namespace {

// The first line of rank 0's welcome: whether this connection is the one for chunks.
constexpr const char* kStay = "stay";
constexpr const char* kAgain = "again";

constexpr Nanoseconds kTurn = 10 * base::kMillisecond;
constexpr Nanoseconds kBetweenQuestions = 200 * base::kMillisecond;

// How long rank 0 stays to tell the ranks that come later that all are refused.
constexpr Nanoseconds kLinger = base::kSecond;

class Meeting {
 public:
  explicit Meeting(const Site& site);
  Met run();

 private:
  void gather();
  bool is_host() const { return rendezvous_ && self_.rank == 0; }  // all others call it first
  bool is_done() const;
  std::vector<int> find_missing() const;
  [[noreturn]] void give_up();

  std::vector<Address> find(const Rendezvous& rendezvous);
  void learn_from(const std::vector<std::string>& texts);
  void call_lower_ranks(int first);

  void hear_callers();
  void admit(base::Fd& socket, const Hello& hello);
  void check_alike(int rank, const Card& card, const base::Fd* socket) const;
  void check_families() const;
  void refuse(const Error& why, const base::Fd* socket) const;
  void turn_away_the_late(const Error& why);
  bool must_call_again(int rank) const;
  void welcome_all();
  void interrupt_if_asked();
  void watch() const;
  void tell_of_error(const Error& error) const;
  void tell_of_interruption(int rank, const std::string& why) const;
  void hear_of_interruptions();
  void look_for_ended_ranks();

  void advance(Call& call);
  void hear_welcome(Call& call, const std::string& text);
  void wait();
  Met result();

  const Site& site_;
  Nanoseconds deadline_;
  std::optional<Rendezvous> rendezvous_;
  Identity self_;
  base::Fd listener_;
  bool is_gathering_;  // as rank 0, until all have come for the first time
  Lines lines_;
  Nanoseconds heard_at_ = 0;
  std::vector<Card> cards_;  // empty until the rank has been heard of
  Callers callers_;
  std::vector<Call> calls_;
  Doubts doubts_;
  EndWatch ends_;
};

Meeting::Meeting(const Site& site)
    : site_(site),
      deadline_(base::now() + site.policy.timeout),
      rendezvous_(site.all_gather ? std::nullopt : rendezvous_from_environment()),
      self_{.rank = site.place.rank,
            .world = site.place.world,
            .job = site.place.job,
            .key = secret_from_environment()},
      is_gathering_(is_host()),
      lines_(site.place.world),
      cards_(site.place.world),
      callers_(site.place.world),
      ends_(site.place.world, [this](int rank) { return addresses_of(cards_[rank], self_.card); }) {
  std::replace(self_.job.begin(), self_.job.end(), '\n', ' ');
  listener_ = listen_at_port(rendezvous_ && self_.rank == 0 ? rendezvous_->port : 0);
  self_.card = card_of_this_process(port_of(listener_),
                                    site.all_gather ? base::env("MASTER_ADDR").value_or("") : "");
  if (!site.transport.empty()) self_.card.transport = site.transport;
  cards_[self_.rank] = self_.card;
}

// Ranks that connect to each other all get the failure of one of them. While they gather at rank 0,
// a rank that has failed may come again before the others give up.
Met Meeting::run() {
  const Interruption interruption;
  try {
    gather();
    return result();
  } catch (const Error& error) {
    if (error.code() == Code::mismatch && is_gathering_) turn_away_the_late(error);
    if (!interruption.has_come()) tell_of_error(error);
    throw;
  }
}

void Meeting::gather() {
  if (site_.all_gather) {
    learn_from(site_.all_gather(write(self_.card) + ' ' + base::random_name()));
    call_lower_ranks(0);
  } else if (rendezvous_ && self_.rank != 0) {
    calls_.emplace_back(0, find(*rendezvous_), Call::At::rendezvous);
  }
  while (!is_done()) {
    wait();
    interrupt_if_asked();
    watch();
    hear_callers();
    if (is_gathering_) {
      hear_of_interruptions();
    } else {
      look_for_ended_ranks();
    }
    // NOLINTNEXTLINE(modernize-loop-convert): a welcome adds calls to others
    for (std::size_t i = 0; i < calls_.size(); ++i) advance(calls_[i]);
    std::erase_if(calls_, [](const Call& call) { return call.is_over(); });
    if (is_gathering_ && is_done()) welcome_all();
    if (!is_done() && base::now() >= deadline_) give_up();
  }
}

// A name server may learn of a host only when its rank starts.
std::vector<Address> Meeting::find(const Rendezvous& rendezvous) {
  for (;;) {
    std::string why;
    auto addresses = resolve(rendezvous.host, rendezvous.port, why);
    if (!addresses.empty()) return addresses;
    PLAIT_CHECK(base::now() < deadline_, "rank ", self_.rank, " cannot find host \"",
                rendezvous.host, "\", where rank 0 is to be met: ", why);
    interrupt_if_asked();
    watch();
    base::sleep_until(std::min(deadline_, base::now() + kBetweenQuestions));
  }
}

bool Meeting::is_done() const { return find_missing().empty(); }

std::vector<int> Meeting::find_missing() const {
  std::vector<int> missing;
  for (int rank = 0; rank < self_.world; ++rank) {
    if (rank != self_.rank && !lines_.has(rank)) missing.push_back(rank);
  }
  return missing;
}

void Meeting::give_up() {
  const std::vector<int> missing = find_missing();
  const std::string within = " within " + base::show_duration(site_.policy.connect_timeout);
  std::string why = doubts_.about(missing);
  if (why.empty() && !site_.all_gather && !site_.transport.empty())
    why = ask_for_others(self_.rank, site_.transport);
  const std::string doubt = why.empty() ? "" : "; " + why;
  if (rendezvous_ && self_.rank != 0 && missing.front() == 0) {
    throw Error(Code::timeout,
                sentence("rank 0 of ", self_.world, " has not been met at ", rendezvous_->host, ':',
                         rendezvous_->port, within, doubt),
                0);
  }
  throw Error(
      Code::timeout,
      sentence(missing.size() > 1 ? "ranks " : "rank ", base::show_list(missing), " of ",
               self_.world, missing.size() > 1 ? " have" : " has", " not come", within, doubt),
      missing.front());
}

// The store may hold anything: what it returns is looked at before it is believed. The last word of
// rank 0's part is a random number, which is a secret of the ranks of this start, and never sent.
void Meeting::learn_from(const std::vector<std::string>& texts) {
  PLAIT_CHECK(static_cast<int>(texts.size()) == self_.world, "the caller's all_gather returned ",
              texts.size(), " parts in a world of ", self_.world);
  for (int rank = 0; rank < self_.world; ++rank) {
    const std::string_view text = texts[rank];
    const std::size_t blank = text.rfind(' ');
    const auto card = blank == text.npos ? std::nullopt : read_card(text.substr(0, blank));
    PLAIT_CHECK(card, "the caller's all_gather returned \"", text.substr(0, 40), "\" for rank ",
                rank, ", which it cannot have sent");
    check_alike(rank, *card, nullptr);
    cards_[rank] = *card;
  }
  check_families();
  const std::string start = texts[0].substr(texts[0].rfind(' ') + 1);
  self_.key += '\n' + start;
  self_.job = base::to_hex(base::hmac_sha256(start, "job"));
}

// All ranks that see a card that differs refuse it; a caller is told the reason.
void Meeting::check_alike(int rank, const Card& card, const base::Fd* socket) const {
  if (const auto why = find_difference(rank, card, self_.rank, self_.card)) refuse(*why, socket);
}

void Meeting::check_families() const {
  if (const auto why = find_families_apart(cards_)) refuse(*why, nullptr);
}

void Meeting::refuse(const Error& why, const base::Fd* socket) const {
  if (socket != nullptr) say(*socket, Word::mismatch, why.what());
  if (is_host()) lines_.say_words(Word::mismatch, why.what(), self_.rank);
  throw Error(why);
}

// Ranks do not start at the same moment: those that call a little later would wait in vain.
void Meeting::turn_away_the_late(const Error& why) {
  std::set<int> told = {self_.rank, why.culprit()};
  for (int rank = 0; rank < self_.world; ++rank) {
    if (lines_.has(rank)) told.insert(rank);
  }
  const Nanoseconds end = base::now() + kLinger;
  while (static_cast<int>(told.size()) < self_.world && base::now() < end) {
    wait();
    callers_.accept(listener_);
    callers_.hear(self_, doubts_, [&](base::Fd& socket, const Hello& hello) {
      say(socket, Word::mismatch, why.what());
      told.insert(hello.rank);
    });
  }
}

// Ranks that use shared memory never come, neither to rank 0 nor to those that wait for it.
void Meeting::watch() const {
  if (!site_.watch || (self_.rank != 0 && lines_.has(0))) return;
  try {
    site_.watch();
  } catch (const Error& why) {
    refuse(why, nullptr);
  }
}

void Meeting::call_lower_ranks(int first) {
  for (int rank = first; rank < self_.rank; ++rank)
    calls_.emplace_back(rank, addresses_of(cards_[rank], self_.card), Call::At::own_address);
}

void Meeting::hear_callers() {
  callers_.accept(listener_);
  callers_.hear(self_, doubts_,
                [&](base::Fd& socket, const Hello& hello) { admit(socket, hello); });
}

// One that calls again has given up its first call.
void Meeting::admit(base::Fd& socket, const Hello& hello) {
  check_alike(hello.rank, hello.card, &socket);
  cards_[hello.rank] = hello.card;
  ends_.note(hello.rank, false);
  if (!is_gathering_ && !say(socket, Word::welcome, "")) return;
  lines_.set(hello.rank, std::move(socket),
             is_gathering_ ? Lines::Says::words : Lines::Says::frames);
}

// Ranks meet at an address that all of them know, and rank 0's chunks are to go by another.
bool Meeting::must_call_again(int rank) const {
  if (!self_.card.has_interface()) return false;
  const auto hosts = base::split(self_.card.hosts, ',');
  return std::find(hosts.begin(), hosts.end(), self_of(lines_[rank])) == hosts.end();
}

void Meeting::interrupt_if_asked() {
  if (!site_.policy.interrupted) return;
  try {
    site_.policy.interrupted();
  } catch (...) {
    // Ranks that have called since would call again until their deadlines.
    try {
      hear_callers();
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the interruption is what counts
    }
    tell_of_interruption(self_.rank, sentence("rank ", self_.rank, " (pid ", self_.card.pid,
                                              ") was interrupted while the group was assembling"));
    throw;
  }
}

// Each rank passes on what it is told, since not all have a connection to the one that has failed.
void Meeting::tell_of_error(const Error& error) const {
  Failure failure = failure_of(error);
  if (failure.culprit == Error::kNobody) {
    failure.culprit = self_.rank;
    failure.sentence = sentence("rank ", self_.rank, " (pid ", self_.card.pid, "): ", error.what());
  }
  lines_.say_frames(failure);
}

// The others would wait for this rank until their deadlines. While they gather, rank 0 tells them,
// and hears it from any other rank.
void Meeting::tell_of_interruption(int rank, const std::string& why) const {
  const std::string text = sentence(rank, ' ', why);
  lines_.say_words(Word::interrupted, text, rank);
  for (const Call& call : calls_) call.tell_of_interruption(text, self_);
  lines_.say_frames({.code = Code::peer_lost, .culprit = rank, .sentence = why});
}

void Meeting::hear_of_interruptions() {
  if (base::now() - heard_at_ < kTurn) return;
  heard_at_ = base::now();
  const auto told = lines_.hear_interruption();
  if (!told) return;
  tell_of_interruption(told->culprit, told->sentence);
  throw Error(told->code, told->sentence, told->culprit);
}

// Where ranks connect to each other. What a rank says before it closes its connection counts, and a
// rank without a connection to this one has ended if it listens no more.
void Meeting::look_for_ended_ranks() {
  if (base::now() - heard_at_ < kTurn) return;
  heard_at_ = base::now();
  for (int rank = 0; rank < self_.world; ++rank) {
    if (!lines_.has(rank)) continue;
    const bool is_closed = is_closed_by_peer(lines_[rank]);
    if (const auto failure = find_failure(lines_[rank]))
      throw Error(failure->code, printable(failure->sentence), failure->culprit);
    ends_.note(rank, is_closed);
  }
  std::vector<int> awaited = find_missing();
  std::erase_if(awaited, [&](int rank) { return rank < self_.rank || cards_[rank].hosts.empty(); });
  ends_.probe(awaited, self_, doubts_);
  const auto ended = ends_.find_ended();
  if (!ended) return;
  const Card& card = cards_[*ended];
  throw Error(Code::peer_lost,
              sentence("rank ", *ended, " (pid ", card.pid, " on ", card.name,
                       ") has died or given up while the group was assembling"),
              *ended);
}

// Where a rank has gone meanwhile the others see its connection closed, and so does this one.
void Meeting::welcome_all() {
  is_gathering_ = false;
  std::string text;
  for (int rank = 0; rank < self_.world; ++rank) {
    // The address that a rank called from is one that it can be reached by, as far as is known.
    Card& card = cards_[rank];
    if (rank != 0 && !card.has_interface()) card.hosts = peer_of(lines_[rank]) + ',' + card.hosts;
    text += '\n' + write(card);
  }
  check_families();
  const std::string stay = message_of(Word::welcome, kStay + text);
  const std::string again = message_of(Word::welcome, kAgain + text);
  const auto welcome_of = [&](int rank) -> const std::string& {
    return must_call_again(rank) ? again : stay;
  };
  const Nanoseconds deadline = std::max(deadline_, base::now() + kSilentCaller);
  // A rank that has not taken its welcome is missing, as if it had not come.
  for (const int rank : lines_.send(welcome_of, deadline, [this] { interrupt_if_asked(); }))
    lines_.drop(rank);
  for (int rank = 1; rank < self_.world; ++rank) {
    if (lines_.has(rank) && must_call_again(rank)) lines_.drop(rank);
  }
}

void Meeting::advance(Call& call) {
  if (call.is_over()) return;
  if (call.has_socket()) {
    const auto welcome = call.advance(self_, doubts_);
    if (!call.is_to_rendezvous()) ends_.note(call.rank(), call.is_refused());
    if (welcome) hear_welcome(call, *welcome);
    return;
  }
  try {
    call.begin();
  } catch (const Error&) {
    if (callers_.are_none()) throw;
    callers_.send_strangers_away();
  }
}

void Meeting::hear_welcome(Call& call, const std::string& text) {
  base::Fd socket = call.take_socket();
  if (!call.is_to_rendezvous()) {
    lines_.set(call.rank(), std::move(socket), Lines::Says::frames);
    return;
  }
  const auto lines = base::split(text, '\n');
  for (int other = 0; other < self_.world; ++other) {
    const std::size_t line = static_cast<std::size_t>(other) + 1;
    const auto card = line < lines.size() ? read_card(lines[line]) : std::nullopt;
    if (!card) base::fail(Code::system, "what rank 0 told about rank ", other, " makes no sense");
    cards_[other] = *card;
  }
  const bool stays = lines[0] == kStay;
  if (stays) lines_.set(0, std::move(socket), Lines::Says::frames);
  call_lower_ranks(stays ? 1 : 0);  // `call` may have moved
}

void Meeting::wait() {
  std::vector<pollfd> sockets;
  if (callers_.has_room())
    sockets.push_back({.fd = listener_.get(), .events = POLLIN, .revents = 0});
  callers_.add_to(sockets);
  bool is_to_call = false;
  for (const Call& call : calls_) {
    is_to_call = is_to_call || !call.has_socket();
    call.add_to(sockets);
  }
  const Nanoseconds longest = is_to_call ? base::kMillisecond : kTurn;
  ::poll(sockets.data(), sockets.size(), static_cast<int>(longest / base::kMillisecond));
}

Met Meeting::result() {
  std::vector<Neighbor> neighbors;
  for (int rank = 0; rank < self_.world; ++rank) {
    neighbors.push_back({sentence("pid ", cards_[rank].pid, " on ", cards_[rank].name)});
    if (lines_.has(rank)) set_options(lines_[rank], site_.policy.lost_after);
  }
  std::vector<base::Fd> sockets = lines_.take_all();
  try {
    return {.mesh = std::make_shared<Mesh>(self_.rank, std::move(neighbors), sockets, site_.policy),
            .crowded = is_crowded(cards_, self_.rank)};
  } catch (const Error&) {
    lines_.put_back(std::move(sockets));  // for tell_of_error()
    throw;
  }
}

}  // namespace

Met meet(const Site& site) { return Meeting(site).run(); }

}  // namespace plait::comm::tcp
