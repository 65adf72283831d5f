#include "comm/tcp/meeting.h"

#include <poll.h>

#include <algorithm>
#include <map>
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
#include "comm/tcp/handshake.h"
#include "comm/tcp/rendezvous.h"

namespace plait::comm::tcp {

using base::Nanoseconds;
using base::sentence;

namespace {

// The first line of rank 0's welcome: whether this connection is the one for chunks.
constexpr const char* kStay = "stay";
constexpr const char* kAgain = "again";

constexpr Nanoseconds kTurn = 10 * base::kMillisecond;
constexpr Nanoseconds kSilentCaller = 5 * base::kSecond;  // then it is dropped
constexpr Nanoseconds kSilentInACrowd = 250 * base::kMillisecond;
constexpr Nanoseconds kOneAddress = base::kSecond;  // then the next address is tried
constexpr Nanoseconds kBetweenCalls = 20 * base::kMillisecond;
constexpr std::size_t kMostStrangers = 64;
constexpr int kMostAtOnce = 32;
constexpr Nanoseconds kBetweenQuestions = 200 * base::kMillisecond;

class Meeting {
 public:
  explicit Meeting(const Site& site);
  Met run();

 private:
  struct Caller {
    base::Fd socket;
    std::string said;
    Nanoseconds since;
    std::optional<Hello> hello = {};  // of a caller that is to prove that it knows the secret
    std::string proof = {};           // that it is to send
  };
  struct Call {
    int rank;
    std::vector<Address> addresses;
    std::size_t next = 0;  // of them, in turn
    base::Fd socket = {};
    std::string hello = {};  // what was said to it; empty: nothing yet
    bool is_proved = false;  // that it knows the secret
    std::string heard = {};
    Nanoseconds since = 0;
    bool is_to_rendezvous = false;  // where rank 0 answers when all have come
    bool is_over = false;
  };

  bool is_host() const { return rendezvous_ && me_ == 0; }  // all others call it first
  bool has_secret() const { return !key_.empty(); }
  bool is_trusted(const Call& call) const { return call.is_proved || !has_secret(); }
  bool is_done() const;
  std::vector<int> find_missing() const;
  [[noreturn]] void give_up();

  std::vector<Address> find(const Rendezvous& rendezvous) const;
  void learn_from(const std::vector<std::string>& texts);
  void call(int rank, std::vector<Address> addresses);
  void call_lower_ranks(int first);
  std::vector<Address> addresses_of(const Card& card) const;

  bool has_room_for_callers() const { return callers_.size() < most_callers_; }
  void send_strangers_away();
  void accept_callers();
  void hear_callers();
  bool is_finished(Caller& caller);
  bool answer(Caller& caller, const std::string& text);
  void judge(Caller& caller, const Hello& hello, const Message& message);
  void admit(Caller& caller, const Hello& hello);
  std::string refusal_of(const Hello& hello) const;
  void answer_another_build(const Caller& caller, const std::string& text);
  void check_build(int rank, std::string_view build, const base::Fd* socket);
  bool must_call_again(int rank) const;
  void welcome_all();
  void interrupt_if_asked() const;
  void tell_of_interruption(int rank, const std::string& why) const;
  void hear_of_interruptions();

  void advance(Call& call);
  void hear(Call& call);
  void hear_challenge(Call& call, const std::string& text);
  void hear_welcome(Call& call, const std::string& text);
  void distrust(Call& call);
  void wait();
  Met result();

  const Site& site_;
  int me_;
  int world_;
  Nanoseconds deadline_;
  std::optional<Rendezvous> rendezvous_;
  std::string job_;
  std::string key_;  // that all ranks know and no other process; empty: the network is trusted
  base::Fd listener_;
  Card card_;
  bool is_gathering_;  // as rank 0, until all have come for the first time
  std::vector<base::Fd> sockets_;
  std::vector<std::string> heard_;  // from each rank, while they gather
  Nanoseconds heard_at_ = 0;
  std::vector<Card> cards_;  // empty until the rank has been heard of
  std::vector<Caller> callers_;
  std::size_t most_callers_;
  std::vector<Call> calls_;
  std::map<int, std::string>
      doubts_;  // by rank: what was wrong with what said that it was this one
};

Meeting::Meeting(const Site& site)
    : site_(site),
      me_(site.place.rank),
      world_(site.place.world),
      deadline_(base::now() + site.policy.connect_timeout),
      rendezvous_(site.all_gather ? std::nullopt : rendezvous_from_environment()),
      job_(site.place.job),
      key_(secret_from_environment()),
      is_gathering_(is_host()),
      sockets_(site.place.world),
      heard_(site.place.world),
      cards_(site.place.world),
      most_callers_(static_cast<std::size_t>(site.place.world) + kMostStrangers) {
  std::replace(job_.begin(), job_.end(), '\n', ' ');
  listener_ = listen_at_port(rendezvous_ && me_ == 0 ? rendezvous_->port : 0);
  card_ = card_of_this_process(port_of(listener_),
                               site.all_gather ? base::env("MASTER_ADDR").value_or("") : "");
  cards_[me_] = card_;
}

Met Meeting::run() {
  if (site_.all_gather) {
    learn_from(site_.all_gather(write(card_) + ' ' + base::random_name()));
    call_lower_ranks(0);
  } else if (rendezvous_ && me_ != 0) {
    call(0, find(*rendezvous_));
    calls_[0].is_to_rendezvous = true;
  }
  while (!is_done()) {
    wait();
    interrupt_if_asked();
    accept_callers();
    hear_callers();
    if (is_gathering_) hear_of_interruptions();
    // NOLINTNEXTLINE(modernize-loop-convert): a welcome adds calls to others
    for (std::size_t i = 0; i < calls_.size(); ++i) advance(calls_[i]);
    std::erase_if(calls_, [](const Call& call) { return call.is_over; });
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
    PLAIT_CHECK(base::now() < deadline_, "rank ", me_, " cannot find host \"", rendezvous.host,
                "\", where rank 0 is to be met: ", why);
    interrupt_if_asked();
    base::sleep_until(std::min(deadline_, base::now() + kBetweenQuestions));
  }
}

bool Meeting::is_done() const { return find_missing().empty(); }

std::vector<int> Meeting::find_missing() const {
  std::vector<int> missing;
  for (int rank = 0; rank < world_; ++rank) {
    if (rank != me_ && !sockets_[rank]) missing.push_back(rank);
  }
  return missing;
}

void Meeting::give_up() {
  const std::vector<int> missing = find_missing();
  const std::string within = " within " + base::show_duration(site_.policy.connect_timeout);
  const auto doubted = std::find_if(missing.begin(), missing.end(),
                                    [&](int rank) { return doubts_.contains(rank); });
  const std::string doubt = doubted == missing.end() ? "" : "; " + doubts_[*doubted];
  if (rendezvous_ && me_ != 0 && missing.front() == 0) {
    throw Error(Code::timeout,
                sentence("rank 0 of ", world_, " has not been met at ", rendezvous_->host, ':',
                         rendezvous_->port, within, doubt),
                0);
  }
  throw Error(Code::timeout,
              sentence(missing.size() > 1 ? "ranks " : "rank ", base::show_list(missing), " of ",
                       world_, missing.size() > 1 ? " have" : " has", " not come", within, doubt),
              missing.front());
}

// The store may hold anything: what it returns is looked at before it is believed. The last word of
// rank 0's part is a random number, which is a secret of the ranks of this start, and never sent.
void Meeting::learn_from(const std::vector<std::string>& texts) {
  PLAIT_CHECK(static_cast<int>(texts.size()) == world_, "the caller's all_gather returned ",
              texts.size(), " parts in a world of ", world_);
  for (int rank = 0; rank < world_; ++rank) {
    const std::string_view text = texts[rank];
    const std::size_t blank = text.rfind(' ');
    const auto card = blank == text.npos ? std::nullopt : read_card(text.substr(0, blank));
    PLAIT_CHECK(card, "the caller's all_gather returned \"", text.substr(0, 40), "\" for rank ",
                rank, ", which it cannot have sent");
    check_build(rank, card->build, nullptr);
    cards_[rank] = *card;
  }
  const std::string start = texts[0].substr(texts[0].rfind(' ') + 1);
  key_ += '\n' + start;
  job_ = base::to_hex(base::hmac_sha256(start, "job"));
}

// All ranks that see another build's card refuse it; a caller is told the reason.
void Meeting::check_build(int rank, std::string_view build, const base::Fd* socket) {
  if (build == card_.build) return;
  const std::string why = sentence("rank ", rank, " runs plait ", build, ", rank ", me_, " plait ",
                                   card_.build, ": all ranks must run the same build");
  if (socket != nullptr) say(*socket, Word::mismatch, why);
  for (int other = 0; is_host() && other < world_; ++other) {
    if (sockets_[other]) say(sockets_[other], Word::mismatch, why);
  }
  throw Error(Code::mismatch, why, rank);
}

void Meeting::call(int rank, std::vector<Address> addresses) {
  calls_.push_back({.rank = rank, .addresses = std::move(addresses)});
}

void Meeting::call_lower_ranks(int first) {
  for (int rank = first; rank < me_; ++rank) call(rank, addresses_of(cards_[rank]));
}

// Loopback leads to the very host only, and comes last.
std::vector<Address> Meeting::addresses_of(const Card& card) const {
  std::vector<Address> all;
  const auto port = base::parse_int(card.port);
  std::string why;
  for (const std::string_view host : base::split(card.hosts, ',')) {
    for (const Address& one : resolve(std::string(host), static_cast<int>(port.value_or(0)), why)) {
      if (!one.is_loopback() || card.host == card_.host) all.push_back(one);
    }
  }
  return all;
}

// A flood of callers must neither keep this rank from its deadline nor push out a rank that has
// called and is about to speak: while there are many, the rest waits in the kernel's queue.
void Meeting::accept_callers() {
  const Nanoseconds now = base::now();
  if (!has_room_for_callers()) {
    std::erase_if(callers_, [&](const Caller& one) { return now - one.since > kSilentInACrowd; });
  }
  for (int turn = 0; turn < kMostAtOnce && has_room_for_callers(); ++turn) {
    std::optional<base::Fd> socket;
    try {
      socket = accept_caller(listener_);
    } catch (const Error&) {
      if (callers_.empty()) throw;
      return send_strangers_away();
    }
    if (!socket) break;
    callers_.push_back({.socket = std::move(*socket), .said = {}, .since = now});
  }
}

// Where this process has no descriptors left, it is the strangers who have them. From now on there
// may be half as many. A rank among them calls again.
void Meeting::send_strangers_away() {
  most_callers_ = std::max<std::size_t>(callers_.size() / 2, 1);
  std::stable_partition(callers_.begin(), callers_.end(),
                        [](const Caller& one) { return one.hello.has_value(); });
  callers_.erase(callers_.begin() + static_cast<std::ptrdiff_t>(callers_.size() / 2),
                 callers_.end());
}

void Meeting::hear_callers() {
  std::erase_if(callers_, [&](Caller& caller) { return is_finished(caller); });
}

// A caller has so long for all that it says: saying it byte by byte gains it nothing.
bool Meeting::is_finished(Caller& caller) {
  bool is_open = true;
  const auto message = read_message(caller.socket, caller.said, kMostHelloBytes, is_open);
  if (!message) return !is_open || base::now() - caller.since > kSilentCaller;
  caller.said.clear();
  if (!caller.hello) return message->word != Word::hello || answer(caller, message->text);
  judge(caller, *caller.hello, *message);
  return true;
}

// False: the caller has been challenged, and is to prove that it knows the secret. No caller is
// believed before that, and none can do more than be named in the sentence of a timeout.
bool Meeting::answer(Caller& caller, const std::string& text) {
  auto hello = read_hello(text);
  if (!hello) {
    answer_another_build(caller, text);
    return true;
  }
  if (const std::string why = refusal_of(*hello); !why.empty()) {
    say(caller.socket, Word::refusal, why);
    return true;
  }
  if (hello->has_secret != has_secret()) {
    const std::string why = sentence(
        "rank ", hello->rank, hello->has_secret ? " has" : " has not", " set ", kSecretVariable,
        ", rank ", me_, has_secret() ? " has" : " has not", ": it must be the same for all ranks");
    say(caller.socket, Word::refusal, why);
    doubts_[hello->rank] = why;
    return true;
  }
  if (!has_secret()) {
    admit(caller, *hello);
    return true;
  }
  const std::string nonce = base::random_name();
  Proofs proofs = prove(key_, text, nonce);
  caller.hello = std::move(*hello);
  caller.proof = std::move(proofs.caller);
  return !say(caller.socket, Word::challenge,
              write(Challenge{.nonce = nonce, .proof = proofs.listener}));
}

std::string Meeting::refusal_of(const Hello& hello) const {
  const bool is_expected =
      hello.job == job_ && hello.world == world_ && hello.rank != me_ && hello.to == me_;
  return is_expected ? "" : sentence("here is rank ", me_, " of ", world_, " of another job");
}

void Meeting::answer_another_build(const Caller& caller, const std::string& text) {
  const std::string build = build_in(text);
  if (build.empty() || build == card_.build) return;
  const std::string why = sentence("a rank that called rank ", me_, " from ",
                                   peer_of(caller.socket), " runs plait ", build, ", rank ", me_,
                                   " plait ", card_.build, ": all ranks must run the same build");
  say(caller.socket, Word::mismatch, why);
  for (const int rank : find_missing()) doubts_.try_emplace(rank, why);
}

void Meeting::judge(Caller& caller, const Hello& hello, const Message& message) {
  if (message.word == Word::proof && base::are_equal_in_constant_time(message.text, caller.proof)) {
    return admit(caller, hello);
  }
  doubts_[hello.rank] =
      sentence("a caller from ", peer_of(caller.socket), " said that it was rank ", hello.rank,
               " and did not know the secret of rank ", me_, ": ", kSecretVariable,
               " must be the same for all ranks");
}

// One that calls again has given up its first call.
void Meeting::admit(Caller& caller, const Hello& hello) {
  check_build(hello.rank, hello.card.build, &caller.socket);
  cards_[hello.rank] = hello.card;
  heard_[hello.rank].clear();
  if (is_gathering_ || say(caller.socket, Word::welcome, ""))
    sockets_[hello.rank] = std::move(caller.socket);
}

// Ranks meet at an address that all of them know, and rank 0's chunks are to go by another.
bool Meeting::must_call_again(int rank) const {
  if (!card_.has_interface()) return false;
  const auto hosts = base::split(card_.hosts, ',');
  return std::find(hosts.begin(), hosts.end(), self_of(sockets_[rank])) == hosts.end();
}

void Meeting::interrupt_if_asked() const {
  if (!site_.policy.interrupted) return;
  try {
    site_.policy.interrupted();
  } catch (...) {
    tell_of_interruption(me_, sentence("rank ", me_, " (pid ", card_.pid,
                                       ") was interrupted while the group was assembling"));
    throw;
  }
}

// Ranks that gather at rank 0 would wait for this one until their deadlines. Rank 0 tells them, and
// hears it from any other rank.
void Meeting::tell_of_interruption(int rank, const std::string& why) const {
  const std::string text = sentence(rank, ' ', why);
  for (int other = 0; is_gathering_ && other < world_; ++other) {
    if (other != rank && sockets_[other]) say(sockets_[other], Word::interrupted, text);
  }
  for (const Call& call : calls_) {
    const bool was_heard = call.is_to_rendezvous && call.socket && !call.hello.empty();
    if (was_heard && is_trusted(call)) say(call.socket, Word::interrupted, text);
  }
}

// A rank that has come says nothing else before it is welcomed. One that hung up may call again.
void Meeting::hear_of_interruptions() {
  if (base::now() - heard_at_ < kTurn) return;
  heard_at_ = base::now();
  for (int rank = 1; rank < world_; ++rank) {
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
  for (int rank = 0; rank < world_; ++rank) {
    // The address that a rank called from is one that it can be reached by, as far as is known.
    Card& card = cards_[rank];
    if (rank != 0 && !card.has_interface()) card.hosts = peer_of(sockets_[rank]) + ',' + card.hosts;
    text += '\n' + write(card);
  }
  const std::string stay = message_of(Word::welcome, kStay + text);
  const std::string again = message_of(Word::welcome, kAgain + text);
  std::vector<std::size_t> done(world_);
  std::vector<int> busy(world_ - 1);
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
  for (int rank = 1; rank < world_; ++rank) {
    if (sockets_[rank] && must_call_again(rank)) sockets_[rank].reset();
  }
}

void Meeting::advance(Call& call) {
  if (call.is_over) return;
  const Nanoseconds now = base::now();
  if (!call.socket) {
    if (call.addresses.empty() || now - call.since < kBetweenCalls) return;
    call.since = now;
    std::optional<base::Fd> socket;
    try {
      socket = begin_to_connect(call.addresses[call.next++ % call.addresses.size()]);
    } catch (const Error&) {
      if (callers_.empty()) throw;
      return send_strangers_away();
    }
    call.hello.clear();
    call.is_proved = false;
    call.heard.clear();
    if (socket) call.socket = std::move(*socket);
    return;
  }
  if (!call.hello.empty()) {
    // Rank 0 answers when all have come; another rank answers at once, and any rank a hello.
    const bool may_wait = call.is_to_rendezvous && is_trusted(call);
    if (!may_wait && now - call.since > kSilentCaller) return call.socket.reset();
    return hear(call);
  }
  const Progress progress = progress_of(call.socket);
  if (progress == Progress::under_way && now - call.since < kOneAddress) return;
  call.hello = write(Hello{.job = job_,
                           .rank = me_,
                           .to = call.rank,
                           .world = world_,
                           .has_secret = has_secret(),
                           .nonce = base::random_name(),
                           .card = card_});
  if (progress != Progress::done || !say(call.socket, Word::hello, call.hello)) call.socket.reset();
}

void Meeting::hear(Call& call) {
  bool is_open = true;
  const bool may_be_long = call.is_to_rendezvous && is_trusted(call);
  const auto message = read_message(call.socket, call.heard,
                                    may_be_long ? kMostWelcomeBytes : kMostHelloBytes, is_open);
  if (!is_open) call.socket.reset();  // the rank may be trying again, too
  if (!message) return;
  call.heard.clear();
  switch (message->word) {
    case Word::hello:
    case Word::proof:
      return call.socket.reset();
    case Word::challenge:
      return hear_challenge(call, message->text);
    case Word::welcome:
      return is_trusted(call) ? hear_welcome(call, message->text) : distrust(call);
    case Word::refusal:
      // An address that several hosts have may have led to another rank: the next may be right.
      if (!call.is_to_rendezvous) return call.socket.reset();
      throw Error(Code::invalid_argument,
                  sentence("rank ", me_, " called ", peer_of(call.socket), " to meet rank ",
                           call.rank, ": ", printable(message->text)));
    case Word::mismatch:
      if (!call.is_to_rendezvous && !is_trusted(call)) return distrust(call);
      throw Error(Code::mismatch, printable(message->text), call.rank);
    case Word::interrupted: {
      if (!call.is_to_rendezvous || !is_trusted(call)) return call.socket.reset();
      const std::size_t blank = message->text.find(' ');
      const auto rank = base::parse_int(message->text.substr(0, blank));
      throw Error(Code::peer_lost, printable(message->text.substr(blank + 1)),
                  static_cast<int>(rank.value_or(call.rank)));
    }
  }
}

void Meeting::hear_challenge(Call& call, const std::string& text) {
  const auto challenge = read_challenge(text);
  if (!has_secret() || call.is_proved || !challenge) return call.socket.reset();
  const Proofs proofs = prove(key_, call.hello, challenge->nonce);
  if (!base::are_equal_in_constant_time(challenge->proof, proofs.listener)) {
    // It may be a rank that has another secret, and can say so.
    say(call.socket, Word::refusal, "");
    return distrust(call);
  }
  call.is_proved = true;
  call.since = base::now();
  if (!say(call.socket, Word::proof, proofs.caller)) call.socket.reset();
}

// Only rank 0 is at an address that the user has told: elsewhere a stranger may listen.
void Meeting::distrust(Call& call) {
  const std::string where = peer_of(call.socket);
  call.socket.reset();
  const std::string why = sentence("what answers there does not know the secret of rank ", me_,
                                   ": ", kSecretVariable, " must be the same for all ranks");
  if (call.is_to_rendezvous) {
    base::fail(Code::invalid_argument, "rank ", me_, " called ", where, " to meet rank ", call.rank,
               ": ", why);
  }
  doubts_[call.rank] = sentence("rank ", me_, " called ", where, ": ", why);
}

void Meeting::hear_welcome(Call& call, const std::string& text) {
  call.is_over = true;
  base::Fd socket = std::move(call.socket);
  if (!call.is_to_rendezvous) {
    sockets_[call.rank] = std::move(socket);
    return;
  }
  const auto lines = base::split(text, '\n');
  for (int other = 0; other < world_; ++other) {
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
  if (has_room_for_callers())
    sockets.push_back({.fd = listener_.get(), .events = POLLIN, .revents = 0});
  for (const Caller& caller : callers_)
    sockets.push_back({.fd = caller.socket.get(), .events = POLLIN, .revents = 0});
  bool is_to_call = false;
  for (const Call& call : calls_) {
    is_to_call = is_to_call || !call.socket;
    if (!call.socket) continue;
    const auto events = static_cast<short>(call.hello.empty() ? POLLOUT : POLLIN);
    sockets.push_back({.fd = call.socket.get(), .events = events, .revents = 0});
  }
  const Nanoseconds longest = is_to_call ? base::kMillisecond : kTurn;
  ::poll(sockets.data(), sockets.size(), static_cast<int>(longest / base::kMillisecond));
}

Met Meeting::result() {
  std::vector<Neighbor> neighbors;
  cpu_set_t cpus = base::allowed_cpus();
  int near = 0;
  for (int rank = 0; rank < world_; ++rank) {
    const Card& card = cards_[rank];
    neighbors.push_back({sentence("pid ", card.pid, " on ", card.name)});
    if (sockets_[rank]) set_options(sockets_[rank], site_.policy.lost_after);
    if (card.host != card_.host) continue;
    const cpu_set_t theirs = cpus_of(card);
    CPU_OR(&cpus, &cpus, &theirs);
    ++near;
  }
  return {
      .mesh = std::make_shared<Mesh>(me_, std::move(neighbors), std::move(sockets_), site_.policy),
      .crowded = CPU_COUNT(&cpus) < near};
}

}  // namespace

Met meet(const Site& site) { return Meeting(site).run(); }

}  // namespace plait::comm::tcp
