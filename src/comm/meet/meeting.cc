#include "comm/meet/meeting.h"

#include <poll.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/hmac.h"
#include "base/text.h"
#include "comm/control/address.h"
#include "comm/control/lookup.h"
#include "comm/control/rendezvous.h"
#include "comm/core/deadline.h"
#include "comm/core/group.h"
#include "comm/core/interruption.h"
#include "comm/meet/handshake.h"
#include "comm/meet/incoming_handshakes.h"
#include "comm/meet/meeting_point.h"
#include "comm/meet/outgoing_handshake.h"
#include "comm/meet/peer_info.h"
#include "comm/meet/roster.h"
#include "comm/meet/timeout_hints.h"

namespace plait::comm::tcp {

using base::Nanoseconds;
using base::sentence;

namespace {

// The first line of rank 0's welcome: whether this connection is the one for chunks.
constexpr const char* kStay = "stay";
constexpr const char* kAgain = "again";

constexpr Nanoseconds kTurn = 10 * base::kMillisecond;
constexpr Nanoseconds kBetweenQuestions = 200 * base::kMillisecond;

// How long a rank whose time is over waits for rank 0 to say which ranks are missing.
constexpr Nanoseconds kAnswer = base::kSecond;

// How long rank 0 stays to tell the ranks that come later that all are refused.
constexpr Nanoseconds kLinger = base::kSecond;

class Meeting {
 public:
  explicit Meeting(const Site& site);
  MeetResult run();

 private:
  void gather();
  // True if all others call this rank first.
  bool is_host() const { return ranks_.rendezvous && self().rank == 0; }

  std::vector<Address> find(const Rendezvous& rendezvous);
  void learn_from(const std::vector<std::string>& texts);
  void share_secret(const std::string& secret);
  void call_lower_ranks(int first);

  void receive_callers();
  void admit(base::Fd& socket, const Hello& hello);
  void check_alike(int rank, const PeerInfo& info, const base::Fd* socket) const;
  void check_families() const;
  void refuse(const Error& why, const base::Fd* socket) const;
  void reject_late_callers(const Error& why);
  bool must_call_again(int rank) const;
  void welcome_all();
  void interrupt_if_asked();
  void check_ranks();
  void watch() const;

  void advance(OutgoingHandshake& call);
  void receive_welcome(OutgoingHandshake& call, const std::string& text);
  void wait();
  void end_at_deadline();
  [[noreturn]] void give_up() const;
  MeetResult result();

  const Identity& self() const { return ranks_.self; }

  const Site& site_;
  std::optional<Card> rank_0_;  // by the site's meeting point
  Deadline deadline_;
  Roster ranks_;
  bool is_gathering_;       // as rank 0, until all have come for the first time
  bool has_asked_ = false;  // rank 0 which ranks are missing
  base::Fd listener_;
  Nanoseconds checked_at_ = 0;
  IncomingHandshakes callers_;
};

std::optional<Rendezvous> rendezvous_of(const Site& site, const std::optional<Card>& rank_0) {
  if (site.all_gather) return std::nullopt;
  if (!rank_0) return rendezvous_from_environment();
  return Rendezvous{rank_0->info.name,
                    static_cast<int>(base::parse_int(rank_0->info.port).value_or(0))};
}

Meeting::Meeting(const Site& site)
    : site_(site),
      rank_0_(read_card(site.meeting_point)),
      deadline_(site.policy.timeout),
      ranks_(identity_of(site), rendezvous_of(site, rank_0_)),
      is_gathering_(is_host()),
      listener_(listen_at_port(ranks_.rendezvous && is_host() ? ranks_.rendezvous->port : 0)),
      callers_(site.place.world) {
  ranks_.set_info(info_of(site, port_of(listener_)));
  if (rank_0_) share_secret(rank_0_->secret);
}

// Ranks that connect to each other all get the failure of one of them. While they gather at rank 0,
// a rank that has failed may come again before the others give up. If rank 0's process has ended,
// the ranks of its host know it. To others its network may be down, so they call on.
MeetResult Meeting::run() {
  const Interruption interruption;
  try {
    gather();
    return result();
  } catch (const Error& error) {
    if (error.code() == Code::mismatch && is_gathering_) reject_late_callers(error);
    if (!interruption.has_come()) ranks_.announce_error(error);
    throw;
  }
}

void Meeting::gather() {
  if (site_.all_gather) {
    learn_from(site_.all_gather(write_card(self().info)));
    call_lower_ranks(0);
  } else if (ranks_.rendezvous && self().rank != 0) {
    ranks_.calls.emplace_back(0, find(*ranks_.rendezvous), OutgoingHandshake::At::rendezvous);
  }
  while (!ranks_.is_complete()) {
    wait();
    interrupt_if_asked();
    watch();
    receive_callers();
    check_ranks();
    // NOLINTNEXTLINE(modernize-loop-convert): a welcome adds calls to others
    for (std::size_t i = 0; i < ranks_.calls.size(); ++i) advance(ranks_.calls[i]);
    std::erase_if(ranks_.calls, [](const OutgoingHandshake& call) { return call.is_over(); });
    if (is_gathering_ && ranks_.is_complete()) welcome_all();
    const bool is_over = deadline_.is_over();
    if (!ranks_.is_complete() && is_over) end_at_deadline();
  }
}

// Rank 0 alone knows which ranks are missing. Its own time may end later.
void Meeting::end_at_deadline() {
  if (has_asked_ || !ranks_.ask_for_missing(site_.policy.connect_timeout)) give_up();
  has_asked_ = true;
  deadline_ = Deadline(kAnswer);
}

void Meeting::give_up() const {
  const Error why = ranks_.timed_out(site_.policy.connect_timeout);
  if (is_gathering_) ranks_.announce_missing(why);
  throw Error(why);
}

// A name server may learn of a host only when its rank starts.
std::vector<Address> Meeting::find(const Rendezvous& rendezvous) {
  if (rank_0_) return addresses_of(rank_0_->info, self().info);
  std::string why = "no name server has answered";
  for (std::optional<Lookup> lookup;;) {
    if (!lookup) lookup.emplace(rendezvous.host, rendezvous.port);
    const auto found = lookup->wait(std::min(deadline_.at(), base::now() + kTurn));
    if (found && !found->addresses.empty()) return found->addresses;
    if (found) why = found->why;
    PLAIT_CHECK(!deadline_.is_over(), "rank ", self().rank, " cannot find host \"", rendezvous.host,
                "\", where rank 0 is to be met: ", why);
    interrupt_if_asked();
    watch();
    if (!found) continue;
    base::sleep_until(std::min(deadline_.at(), base::now() + kBetweenQuestions));
    lookup.reset();
  }
}

// The store may hold anything, so what it returns is checked before it is believed.
void Meeting::learn_from(const std::vector<std::string>& texts) {
  std::string secret;
  for (int rank = 0; rank < self().world; ++rank) {
    const auto card = read_card(texts[rank]);
    PLAIT_CHECK(card, "the caller's all_gather returned \"", texts[rank].substr(0, 40),
                "\" for rank ", rank, ", which it cannot have sent");
    check_alike(rank, card->info, nullptr);
    ranks_.infos[rank] = card->info;
    if (rank == 0) secret = card->secret;
  }
  check_families();
  share_secret(secret);
}

void Meeting::share_secret(const std::string& secret) {
  ranks_.self.key += '\n' + secret;
  ranks_.self.job = base::to_hex(base::hmac_sha256(secret, "job"));
}

// All ranks that see a description that differs refuse it; a caller is told the reason.
void Meeting::check_alike(int rank, const PeerInfo& info, const base::Fd* socket) const {
  if (const auto why = find_difference(rank, info, self().rank, self().info)) refuse(*why, socket);
}

void Meeting::check_families() const {
  if (const auto why = find_families_apart(ranks_.infos)) refuse(*why, nullptr);
}

void Meeting::refuse(const Error& why, const base::Fd* socket) const {
  if (socket != nullptr) send_message(*socket, MessageKind::mismatch, why.what());
  if (is_host()) ranks_.lines.send_words(MessageKind::mismatch, why.what(), self().rank);
  throw Error(why);
}

// Ranks do not start at the same moment: those that call a little later would wait in vain.
void Meeting::reject_late_callers(const Error& why) {
  std::set<int> told = {self().rank, why.culprit()};
  for (int rank = 0; rank < self().world; ++rank) {
    if (ranks_.lines.has(rank)) told.insert(rank);
  }
  const Nanoseconds end = base::now() + kLinger;
  while (static_cast<int>(told.size()) < self().world && base::now() < end) {
    wait();
    callers_.accept(listener_);
    callers_.receive(self(), ranks_.hints, [&](base::Fd& socket, const Hello& hello) {
      // A rank that calls again after it was told wants the next group, and goes on calling.
      if (told.insert(hello.rank).second) send_message(socket, MessageKind::mismatch, why.what());
    });
  }
}

// Ranks that use shared memory never come, neither to rank 0 nor to those that wait for it.
void Meeting::watch() const {
  if (!site_.watch || (self().rank != 0 && ranks_.lines.has(0))) return;
  try {
    site_.watch();
  } catch (const Error& why) {
    refuse(why, nullptr);
  }
}

void Meeting::call_lower_ranks(int first) {
  for (int rank = first; rank < self().rank; ++rank)
    ranks_.calls.emplace_back(rank, addresses_of(ranks_.infos[rank], self().info),
                              OutgoingHandshake::At::own_address);
}

void Meeting::receive_callers() {
  callers_.accept(listener_);
  callers_.receive(self(), ranks_.hints,
                   [&](base::Fd& socket, const Hello& hello) { admit(socket, hello); });
}

void Meeting::admit(base::Fd& socket, const Hello& hello) {
  check_alike(hello.rank, hello.info, &socket);
  if (const auto why = ranks_.find_second_claim(hello.rank, hello.info)) refuse(*why, &socket);
  ranks_.infos[hello.rank] = hello.info;
  ranks_.ends.note(hello.rank, false);
  if (is_gathering_) send_message(socket, MessageKind::mark, OutgoingHandshake::mark_of(self()));
  if (!is_gathering_ && !send_message(socket, MessageKind::welcome, "")) return;
  ranks_.lines.set(hello.rank, std::move(socket),
                   is_gathering_ ? PeerSockets::Says::words : PeerSockets::Says::frames);
}

// Ranks meet at an address that all of them know, and rank 0's chunks are to go by another.
bool Meeting::must_call_again(int rank) const {
  if (!self().info.has_interface()) return false;
  const auto hosts = base::split(self().info.hosts, ',');
  return std::find(hosts.begin(), hosts.end(), self_of(ranks_.lines[rank])) == hosts.end();
}

void Meeting::interrupt_if_asked() {
  if (!site_.policy.interrupted) return;
  try {
    site_.policy.interrupted();
  } catch (...) {
    // Ranks that have called since would call again until their deadlines.
    try {
      receive_callers();
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the interruption is what counts
    }
    ranks_.announce_interruption(self().rank,
                                 sentence("rank ", self().rank, " (pid ", self().info.pid,
                                          ") was interrupted while the group was assembling"));
    throw;
  }
}

void Meeting::check_ranks() {
  if (base::now() - checked_at_ < kTurn) return;
  checked_at_ = base::now();
  if (is_gathering_) return ranks_.receive_waiting_ranks();
  ranks_.check_for_ended_ranks();
}

// If a rank has gone meanwhile, the others see its connection closed, and so does this one.
void Meeting::welcome_all() {
  is_gathering_ = false;
  std::string text;
  for (int rank = 0; rank < self().world; ++rank) {
    // The address that a rank called from is one that it can be reached by, as far as is known.
    PeerInfo& info = ranks_.infos[rank];
    if (rank != 0 && !info.has_interface())
      info.hosts = peer_of(ranks_.lines[rank]) + ',' + info.hosts;
    text += '\n' + write(info);
  }
  check_families();
  const std::string stay = message_of(MessageKind::welcome, kStay + text);
  const std::string again = message_of(MessageKind::welcome, kAgain + text);
  const auto welcome_of = [&](int rank) -> const std::string& {
    return must_call_again(rank) ? again : stay;
  };
  const Nanoseconds deadline = std::max(deadline_.at(), base::now() + kSilentCaller);
  // A rank that has not taken its welcome is missing, as if it had not come.
  for (const int rank : ranks_.lines.send(welcome_of, deadline, [this] { interrupt_if_asked(); }))
    ranks_.lines.drop(rank);
  for (int rank = 1; rank < self().world; ++rank) {
    if (ranks_.lines.has(rank) && must_call_again(rank)) ranks_.lines.drop(rank);
  }
}

void Meeting::advance(OutgoingHandshake& call) {
  if (call.is_over()) return;
  if (call.has_socket()) {
    const auto welcome = call.advance(self(), ranks_.hints);
    if (!call.is_to_rendezvous()) ranks_.ends.note(call.rank(), call.is_refused());
    if (welcome) receive_welcome(call, *welcome);
    return;
  }
  try {
    call.begin();
  } catch (const Error&) {
    if (callers_.are_none()) throw;
    callers_.drop_unknown_callers();
  }
}

void Meeting::receive_welcome(OutgoingHandshake& call, const std::string& text) {
  base::Fd socket = call.take_socket();
  if (!call.is_to_rendezvous()) {
    ranks_.lines.set(call.rank(), std::move(socket), PeerSockets::Says::frames);
    return;
  }
  // Rank 0 takes what it is asked after its welcome for a frame.
  if (has_asked_) give_up();
  const auto lines = base::split(text, '\n');
  for (int other = 0; other < self().world; ++other) {
    const std::size_t line = static_cast<std::size_t>(other) + 1;
    const auto info = line < lines.size() ? read_peer_info(lines[line]) : std::nullopt;
    if (!info) base::fail(Code::system, "what rank 0 told about rank ", other, " makes no sense");
    ranks_.infos[other] = *info;
  }
  const bool stays = lines[0] == kStay;
  if (stays) ranks_.lines.set(0, std::move(socket), PeerSockets::Says::frames);
  call_lower_ranks(stays ? 1 : 0);  // `call` may have moved
}

void Meeting::wait() {
  std::vector<pollfd> sockets;
  if (callers_.has_room())
    sockets.push_back({.fd = listener_.get(), .events = POLLIN, .revents = 0});
  callers_.add_to(sockets);
  bool is_to_call = false;
  for (const OutgoingHandshake& call : ranks_.calls) {
    is_to_call = is_to_call || !call.has_socket();
    call.add_to(sockets);
  }
  const Nanoseconds longest = is_to_call ? base::kMillisecond : kTurn;
  ::poll(sockets.data(), sockets.size(), static_cast<int>(longest / base::kMillisecond));
}

MeetResult Meeting::result() {
  std::vector<Neighbor> neighbors;
  for (int rank = 0; rank < self().world; ++rank) {
    neighbors.push_back(
        {sentence("pid ", ranks_.infos[rank].pid, " on ", ranks_.infos[rank].name)});
    if (ranks_.lines.has(rank)) set_options(ranks_.lines[rank], site_.policy.lost_after);
  }
  std::vector<base::Fd> sockets = ranks_.lines.take_all();
  try {
    return {
        .mesh = std::make_shared<Mesh>(self().rank, std::move(neighbors), sockets, site_.policy),
        .oversubscribed = is_oversubscribed(ranks_.infos, self().rank)};
  } catch (const Error&) {
    ranks_.lines.put_back(std::move(sockets));  // for announce_error()
    throw;
  }
}

}  // namespace

MeetResult meet(const Site& site) { return Meeting(site).run(); }

}  // namespace plait::comm::tcp
