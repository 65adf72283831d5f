#include "comm/tcp/meeting.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/cpus.h"
#include "base/env.h"
#include "base/text.h"
#include "comm/tcp/address.h"
#include "comm/tcp/handshake.h"

namespace plait::comm::tcp {

using base::Nanoseconds;
using base::sentence;

namespace {

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
  };
  struct Call {
    int rank;
    std::vector<Address> addresses;
    std::size_t next = 0;  // of them, in turn
    base::Fd socket = {};
    bool has_spoken = false;
    std::string heard = {};
    Nanoseconds since = 0;
  };

  bool is_to_rendezvous(const Call& call) const { return rendezvous_ && call.rank == 0; }
  bool is_host() const { return rendezvous_ && me_ == 0; }  // all others call it first
  bool is_done() const;
  std::vector<int> find_missing() const;
  [[noreturn]] void give_up();

  std::vector<Address> find_rendezvous() const;
  void learn_from(const std::vector<std::string>& texts);
  void call(int rank, std::vector<Address> addresses);
  void call_lower_ranks(int first);
  std::vector<Address> addresses_of(const Card& card) const;

  bool has_room_for_callers() const {
    return callers_.size() < static_cast<std::size_t>(world_) + kMostStrangers;
  }
  void accept_callers();
  void hear_callers();
  void admit(Caller& caller, const Hello& hello);
  void check_build(int rank, const Card& card, const base::Fd* socket);
  void welcome_all();

  void advance(Call& call);
  void hear(Call& call);
  void wait();
  Met result();

  const Site& site_;
  int me_;
  int world_;
  Nanoseconds deadline_;
  std::optional<Rendezvous> rendezvous_;
  std::string job_;
  base::Fd listener_;
  Card card_;
  std::vector<base::Fd> sockets_;
  std::vector<Card> cards_;  // empty until the rank has been heard of
  std::vector<Caller> callers_;
  std::vector<Call> calls_;
};

Meeting::Meeting(const Site& site)
    : site_(site),
      me_(site.place.rank),
      world_(site.place.world),
      deadline_(base::now() + site.policy.connect_timeout),
      rendezvous_(site.all_gather ? std::nullopt : rendezvous_from_environment()),
      job_(site.place.job),
      sockets_(site.place.world),
      cards_(site.place.world) {
  std::replace(job_.begin(), job_.end(), '\n', ' ');
  listener_ = listen_at_port(is_host() ? rendezvous_->port : 0);
  card_ = card_of_this_process(port_of(listener_));
  cards_[me_] = card_;
}

Met Meeting::run() {
  if (site_.all_gather) {
    learn_from(site_.all_gather(write(card_)));
    job_ = cards_[0].nonce;
    call_lower_ranks(0);
  } else if (me_ != 0) {
    call(0, find_rendezvous());
  }
  while (!is_done()) {
    wait();
    if (site_.policy.interrupted) site_.policy.interrupted();
    accept_callers();
    hear_callers();
    // A welcome adds calls to others.
    for (std::size_t i = 0; i < calls_.size(); ++i) advance(calls_[i]);
    if (!is_done() && base::now() >= deadline_) give_up();
  }
  if (is_host()) welcome_all();
  return result();
}

// A name server may learn of a host only when its rank starts.
std::vector<Address> Meeting::find_rendezvous() const {
  for (;;) {
    std::string why;
    auto addresses = resolve(rendezvous_->host, rendezvous_->port, why);
    if (!addresses.empty()) return addresses;
    PLAIT_CHECK(base::now() < deadline_, "rank ", me_, " cannot find host \"", rendezvous_->host,
                "\", where rank 0 is to be met: ", why);
    if (site_.policy.interrupted) site_.policy.interrupted();
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
  if (rendezvous_ && me_ != 0 && missing.front() == 0) {
    throw Error(Code::timeout,
                sentence("rank 0 of ", world_, " has not been met at ", rendezvous_->host, ':',
                         rendezvous_->port, within),
                0);
  }
  throw Error(Code::timeout,
              sentence(missing.size() > 1 ? "ranks " : "rank ", base::show_list(missing), " of ",
                       world_, missing.size() > 1 ? " have" : " has", " not come", within),
              missing.front());
}

// The store may hold anything: what it returns is looked at before it is believed.
void Meeting::learn_from(const std::vector<std::string>& texts) {
  PLAIT_CHECK(static_cast<int>(texts.size()) == world_, "the caller's all_gather returned ",
              texts.size(), " parts in a world of ", world_);
  for (int rank = 0; rank < world_; ++rank) {
    const auto card = read_card(texts[rank]);
    PLAIT_CHECK(card, "the caller's all_gather returned \"", texts[rank].substr(0, 40),
                "\" for rank ", rank, ", which it cannot have sent");
    check_build(rank, *card, nullptr);
    cards_[rank] = *card;
  }
}

// All ranks that see another build's card refuse it; a caller is told the reason.
void Meeting::check_build(int rank, const Card& card, const base::Fd* socket) {
  if (card.build == card_.build) return;
  const std::string why = sentence("rank ", rank, " runs plait ", card.build, ", rank ", me_,
                                   " plait ", card_.build, ": all ranks must run the same build");
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
    auto socket = accept_caller(listener_);
    if (!socket) break;
    callers_.push_back({.socket = std::move(*socket), .said = {}, .since = now});
  }
}

void Meeting::hear_callers() {
  std::erase_if(callers_, [&](Caller& caller) {
    bool is_open = true;
    const auto message = read_message(caller.socket, caller.said, kMostHelloBytes, is_open);
    if (!message) return !is_open || base::now() - caller.since > kSilentCaller;
    const auto hello = message->word == Word::hello ? read_hello(message->text) : std::nullopt;
    if (hello) admit(caller, *hello);
    return true;
  });
}

// One that calls again has given up its first call.
void Meeting::admit(Caller& caller, const Hello& hello) {
  if (hello.job != job_ || hello.world != world_ || hello.rank == me_ || hello.to != me_) {
    say(caller.socket, Word::refusal,
        sentence("here is rank ", me_, " of ", world_, " of another job"));
    return;
  }
  check_build(hello.rank, hello.card, &caller.socket);
  cards_[hello.rank] = hello.card;
  if (is_host() || say(caller.socket, Word::welcome, ""))
    sockets_[hello.rank] = std::move(caller.socket);
}

// Where a rank has gone meanwhile the others see its connection closed, and so does this one.
void Meeting::welcome_all() {
  std::string text;
  for (int rank = 0; rank < world_; ++rank) {
    // The address that a rank called from is one that it can be reached by, as far as is known.
    Card& card = cards_[rank];
    if (rank != 0) card.hosts = peer_of(sockets_[rank]) + ',' + card.hosts;
    text += write(card) + '\n';
  }
  for (int rank = 1; rank < world_; ++rank) say(sockets_[rank], Word::welcome, text);
}

void Meeting::advance(Call& call) {
  if (sockets_[call.rank]) return;
  const Nanoseconds now = base::now();
  if (!call.socket) {
    if (call.addresses.empty() || now - call.since < kBetweenCalls) return;
    auto socket = begin_to_connect(call.addresses[call.next++ % call.addresses.size()]);
    call.since = now;
    call.has_spoken = false;
    call.heard.clear();
    if (socket) call.socket = std::move(*socket);
    return;
  }
  if (call.has_spoken) {
    // Rank 0 answers when all have come; another rank answers at once.
    if (!is_to_rendezvous(call) && now - call.since > kSilentCaller) return call.socket.reset();
    return hear(call);
  }
  const Progress progress = progress_of(call.socket);
  if (progress == Progress::under_way && now - call.since < kOneAddress) return;
  const Hello hello = {.job = job_, .rank = me_, .to = call.rank, .world = world_, .card = card_};
  call.has_spoken = progress == Progress::done && say(call.socket, Word::hello, write(hello));
  if (!call.has_spoken) call.socket.reset();
}

void Meeting::hear(Call& call) {
  bool is_open = true;
  const auto message = read_message(call.socket, call.heard, kMostWelcomeBytes, is_open);
  if (!is_open) call.socket.reset();  // the rank may be trying again, too
  if (!message) return;
  switch (message->word) {
    case Word::hello:
      return call.socket.reset();
    case Word::refusal:
      // An address that several hosts have may have led to another rank: the next may be right.
      if (!is_to_rendezvous(call)) return call.socket.reset();
      throw Error(Code::invalid_argument,
                  sentence("rank ", me_, " called ", peer_of(call.socket), " to meet rank ",
                           call.rank, ": ", message->text));
    case Word::mismatch:
      throw Error(Code::mismatch, message->text, call.rank);
    case Word::welcome:
      break;
  }
  const bool has_cards = is_to_rendezvous(call);
  sockets_[call.rank] = std::move(call.socket);
  if (!has_cards) return;
  const auto lines = base::split(message->text, '\n');
  for (int other = 0; other < world_; ++other) {
    const auto card =
        static_cast<std::size_t>(other) < lines.size() ? read_card(lines[other]) : std::nullopt;
    if (!card) base::fail(Code::system, "what rank 0 told about rank ", other, " makes no sense");
    cards_[other] = *card;
  }
  call_lower_ranks(1);  // `call` may have moved
}

void Meeting::wait() {
  std::vector<pollfd> sockets;
  if (has_room_for_callers())
    sockets.push_back({.fd = listener_.get(), .events = POLLIN, .revents = 0});
  for (const Caller& caller : callers_)
    sockets.push_back({.fd = caller.socket.get(), .events = POLLIN, .revents = 0});
  bool is_to_call = false;
  for (const Call& call : calls_) {
    if (sockets_[call.rank]) continue;
    is_to_call = is_to_call || !call.socket;
    if (!call.socket) continue;
    const auto events = static_cast<short>(call.has_spoken ? POLLIN : POLLOUT);
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
    if (sockets_[rank]) set_options(sockets_[rank]);
    if (card.host != card_.host) continue;
    const cpu_set_t theirs = cpus_of(card);
    CPU_OR(&cpus, &cpus, &theirs);
    ++near;
  }
  return {.mesh = std::make_shared<Mesh>(me_, std::move(neighbors), std::move(sockets_),
                                         site_.policy.timeout),
          .crowded = CPU_COUNT(&cpus) < near};
}

}  // namespace

std::optional<Rendezvous> rendezvous_from_environment() {
  if (const auto text = base::env("PLAIT_RENDEZVOUS")) {
    const auto colon = text->rfind(':');
    const auto port =
        colon == std::string::npos ? std::nullopt : base::parse_int(text->substr(colon + 1));
    PLAIT_CHECK(port && *port > 0 && *port < 65536 && colon > 0, "PLAIT_RENDEZVOUS=", *text,
                " is not like HOST:PORT, as in node1:29600");
    std::string host = text->substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    return Rendezvous{std::move(host), static_cast<int>(*port)};
  }
  const auto host = base::env("MASTER_ADDR");
  const auto port = base::env_int("MASTER_PORT", 1, 65534);
  if (!host || !port) return std::nullopt;
  // The framework's own store listens at MASTER_PORT.
  return Rendezvous{*host, static_cast<int>(*port) + 1};
}

Met meet(const Site& site) { return Meeting(site).run(); }

}  // namespace plait::comm::tcp
