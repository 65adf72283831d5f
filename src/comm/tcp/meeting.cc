#include "comm/tcp/meeting.h"

#include <poll.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/cpus.h"
#include "base/env.h"
#include "base/hmac.h"
#include "base/random.h"
#include "base/text.h"
#include "comm/tcp/address.h"
#include "comm/tcp/call.h"
#include "comm/tcp/callers.h"
#include "comm/tcp/handshake.h"
#include "comm/tcp/identity.h"
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

class Meeting {
 public:
  explicit Meeting(const Site& site);
  Met run();

 private:
  bool is_host() const { return rendezvous_ && self_.rank == 0; }  // all others call it first
  bool is_done() const;
  std::vector<int> find_missing() const;
  [[noreturn]] void give_up();

  std::vector<Address> find(const Rendezvous& rendezvous) const;
  void learn_from(const std::vector<std::string>& texts);
  void call_lower_ranks(int first);
  std::vector<Address> addresses_of(const Card& card) const;

  void admit(base::Fd& socket, const Hello& hello);
  void check_build(int rank, std::string_view build, const base::Fd* socket);
  bool must_call_again(int rank) const;
  void welcome_all();
  void interrupt_if_asked() const;
  void tell_of_interruption(int rank, const std::string& why) const;
  void hear_of_interruptions();

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
  std::vector<base::Fd> sockets_;
  std::vector<std::string> heard_;  // from each rank, while they gather
  Nanoseconds heard_at_ = 0;
  std::vector<Card> cards_;  // empty until the rank has been heard of
  Callers callers_;
  std::vector<Call> calls_;
  Doubts doubts_;
};

Meeting::Meeting(const Site& site)
    : site_(site),
      deadline_(base::now() + site.policy.connect_timeout),
      rendezvous_(site.all_gather ? std::nullopt : rendezvous_from_environment()),
      self_{.rank = site.place.rank,
            .world = site.place.world,
            .job = site.place.job,
            .key = secret_from_environment()},
      is_gathering_(is_host()),
      sockets_(site.place.world),
      heard_(site.place.world),
      cards_(site.place.world),
      callers_(site.place.world) {
  std::replace(self_.job.begin(), self_.job.end(), '\n', ' ');
  listener_ = listen_at_port(rendezvous_ && self_.rank == 0 ? rendezvous_->port : 0);
  self_.card = card_of_this_process(port_of(listener_),
                                    site.all_gather ? base::env("MASTER_ADDR").value_or("") : "");
  cards_[self_.rank] = self_.card;
}

Met Meeting::run() {
  if (site_.all_gather) {
    learn_from(site_.all_gather(write(self_.card) + ' ' + base::random_name()));
    call_lower_ranks(0);
  } else if (rendezvous_ && self_.rank != 0) {
    calls_.emplace_back(0, find(*rendezvous_), Call::At::rendezvous);
  }
  while (!is_done()) {
    wait();
    interrupt_if_asked();
    callers_.accept(listener_);
    callers_.hear(self_, doubts_,
                  [&](base::Fd& socket, const Hello& hello) { admit(socket, hello); });
    if (is_gathering_) hear_of_interruptions();
    // NOLINTNEXTLINE(modernize-loop-convert): a welcome adds calls to others
    for (std::size_t i = 0; i < calls_.size(); ++i) advance(calls_[i]);
    std::erase_if(calls_, [](const Call& call) { return call.is_over(); });
    if (is_gathering_ && is_done()) welcome_all();
    if (!is_done() && base::now() >= deadline_) give_up();
  }
  return result();
}

// A name server may learn of a host only when its rank starts.
std::vector<Address> Meeting::find(const Rendezvous& rendezvous) const {
  for (;;) {
    std::string why;
    auto addresses = resolve(rendezvous.host, rendezvous.port, why);
    if (!addresses.empty()) return addresses;
    PLAIT_CHECK(base::now() < deadline_, "rank ", self_.rank, " cannot find host \"",
                rendezvous.host, "\", where rank 0 is to be met: ", why);
    interrupt_if_asked();
    base::sleep_until(std::min(deadline_, base::now() + kBetweenQuestions));
  }
}

bool Meeting::is_done() const { return find_missing().empty(); }

std::vector<int> Meeting::find_missing() const {
  std::vector<int> missing;
  for (int rank = 0; rank < self_.world; ++rank) {
    if (rank != self_.rank && !sockets_[rank]) missing.push_back(rank);
  }
  return missing;
}

void Meeting::give_up() {
  const std::vector<int> missing = find_missing();
  const std::string within = " within " + base::show_duration(site_.policy.connect_timeout);
  const std::string why = doubts_.about(missing);
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
    check_build(rank, card->build, nullptr);
    cards_[rank] = *card;
  }
  const std::string start = texts[0].substr(texts[0].rfind(' ') + 1);
  self_.key += '\n' + start;
  self_.job = base::to_hex(base::hmac_sha256(start, "job"));
}

// All ranks that see another build's card refuse it; a caller is told the reason.
void Meeting::check_build(int rank, std::string_view build, const base::Fd* socket) {
  if (build == self_.card.build) return;
  const std::string why =
      sentence("rank ", rank, " runs plait ", build, ", rank ", self_.rank, " plait ",
               self_.card.build, ": all ranks must run the same build");
  if (socket != nullptr) say(*socket, Word::mismatch, why);
  for (int other = 0; is_host() && other < self_.world; ++other) {
    if (sockets_[other]) say(sockets_[other], Word::mismatch, why);
  }
  throw Error(Code::mismatch, why, rank);
}

void Meeting::call_lower_ranks(int first) {
  for (int rank = first; rank < self_.rank; ++rank)
    calls_.emplace_back(rank, addresses_of(cards_[rank]), Call::At::own_address);
}

// Loopback leads to the very host only, and comes last.
std::vector<Address> Meeting::addresses_of(const Card& card) const {
  std::vector<Address> all;
  const auto port = base::parse_int(card.port);
  std::string why;
  for (const std::string_view host : base::split(card.hosts, ',')) {
    for (const Address& one : resolve(std::string(host), static_cast<int>(port.value_or(0)), why)) {
      if (!one.is_loopback() || card.host == self_.card.host) all.push_back(one);
    }
  }
  return all;
}

// One that calls again has given up its first call.
void Meeting::admit(base::Fd& socket, const Hello& hello) {
  check_build(hello.rank, hello.card.build, &socket);
  cards_[hello.rank] = hello.card;
  heard_[hello.rank].clear();
  if (is_gathering_ || say(socket, Word::welcome, "")) sockets_[hello.rank] = std::move(socket);
}

// Ranks meet at an address that all of them know, and rank 0's chunks are to go by another.
bool Meeting::must_call_again(int rank) const {
  if (!self_.card.has_interface()) return false;
  const auto hosts = base::split(self_.card.hosts, ',');
  return std::find(hosts.begin(), hosts.end(), self_of(sockets_[rank])) == hosts.end();
}

void Meeting::interrupt_if_asked() const {
  if (!site_.policy.interrupted) return;
  try {
    site_.policy.interrupted();
  } catch (...) {
    tell_of_interruption(self_.rank, sentence("rank ", self_.rank, " (pid ", self_.card.pid,
                                              ") was interrupted while the group was assembling"));
    throw;
  }
}

// Ranks that gather at rank 0 would wait for this one until their deadlines. Rank 0 tells them, and
// hears it from any other rank.
void Meeting::tell_of_interruption(int rank, const std::string& why) const {
  const std::string text = sentence(rank, ' ', why);
  for (int other = 0; is_gathering_ && other < self_.world; ++other) {
    if (other != rank && sockets_[other]) say(sockets_[other], Word::interrupted, text);
  }
  for (const Call& call : calls_) call.tell_of_interruption(text, self_);
}

// A rank that has come says nothing else before it is welcomed. One that hung up may call again.
void Meeting::hear_of_interruptions() {
  if (base::now() - heard_at_ < kTurn) return;
  heard_at_ = base::now();
  for (int rank = 1; rank < self_.world; ++rank) {
    if (!sockets_[rank]) continue;
    bool is_open = true;
    const auto message = read_message(sockets_[rank], heard_[rank], kMostHelloBytes, is_open);
    if (!message || message->word != Word::interrupted) continue;
    const std::string why = printable(message->text.substr(message->text.find(' ') + 1));
    tell_of_interruption(rank, why);
    throw Error(Code::peer_lost, why, rank);
  }
}

// Each rank takes its welcome when it can, and the others don't wait for it. Where a rank has gone
// meanwhile the others see its connection closed, and so does this one.
void Meeting::welcome_all() {
  is_gathering_ = false;
  std::string text;
  for (int rank = 0; rank < self_.world; ++rank) {
    // The address that a rank called from is one that it can be reached by, as far as is known.
    Card& card = cards_[rank];
    if (rank != 0 && !card.has_interface()) card.hosts = peer_of(sockets_[rank]) + ',' + card.hosts;
    text += '\n' + write(card);
  }
  const std::string stay = message_of(Word::welcome, kStay + text);
  const std::string again = message_of(Word::welcome, kAgain + text);
  std::vector<std::size_t> done(self_.world);
  std::vector<int> busy(self_.world - 1);
  std::iota(busy.begin(), busy.end(), 1);
  const Nanoseconds deadline = std::max(deadline_, base::now() + kSilentCaller);
  for (;;) {
    std::erase_if(busy, [&](int rank) {
      const std::string& welcome = must_call_again(rank) ? again : stay;
      return !send_rest(sockets_[rank], welcome, done[rank]) || done[rank] == welcome.size();
    });
    if (busy.empty() || base::now() >= deadline) break;
    interrupt_if_asked();
    std::vector<pollfd> asked;
    asked.reserve(busy.size());
    for (const int rank : busy)
      asked.push_back({.fd = sockets_[rank].get(), .events = POLLOUT, .revents = 0});
    ::poll(asked.data(), asked.size(), static_cast<int>(kTurn / base::kMillisecond));
  }
  for (const int rank : busy) sockets_[rank].reset();  // and is missing, as if it had not come
  for (int rank = 1; rank < self_.world; ++rank) {
    if (sockets_[rank] && must_call_again(rank)) sockets_[rank].reset();
  }
}

void Meeting::advance(Call& call) {
  if (call.is_over()) return;
  if (call.has_socket()) {
    if (const auto welcome = call.advance(self_, doubts_)) hear_welcome(call, *welcome);
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
    sockets_[call.rank()] = std::move(socket);
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
  if (stays) sockets_[0] = std::move(socket);
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
  cpu_set_t cpus = base::allowed_cpus();
  int near = 0;
  for (int rank = 0; rank < self_.world; ++rank) {
    const Card& card = cards_[rank];
    neighbors.push_back({sentence("pid ", card.pid, " on ", card.name)});
    if (sockets_[rank]) set_options(sockets_[rank], site_.policy.lost_after);
    if (card.host != self_.card.host) continue;
    const cpu_set_t theirs = cpus_of(card);
    CPU_OR(&cpus, &cpus, &theirs);
    ++near;
  }
  return {.mesh = std::make_shared<Mesh>(self_.rank, std::move(neighbors), std::move(sockets_),
                                         site_.policy),
          .crowded = CPU_COUNT(&cpus) < near};
}

}  // namespace

Met meet(const Site& site) { return Meeting(site).run(); }

}  // namespace plait::comm::tcp
