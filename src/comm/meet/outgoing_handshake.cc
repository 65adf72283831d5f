#include "comm/meet/outgoing_handshake.h"

#include <cerrno>
#include <system_error>

#include "base/check.h"
#include "base/hmac.h"
#include "base/random.h"
#include "base/text.h"
#include "comm/control/rendezvous.h"
#include "comm/meet/incoming_handshakes.h"

namespace plait::comm::tcp {

using base::Nanoseconds;
using base::sentence;

namespace {

constexpr Nanoseconds kOneAddress = base::kSecond;  // then the next address is tried
constexpr Nanoseconds kBetweenCalls = 20 * base::kMillisecond;

constexpr Nanoseconds kPromptAnswer = 200 * base::kMillisecond;  // of a process that is no rank
constexpr const char* kNoAnswer = "it was accepted and has no answer";

}  // namespace

void OutgoingHandshake::begin() {
  const Nanoseconds now = base::now();
  if (addresses_.empty()) is_over_ = is_probe_;
  if (addresses_.empty() || now - since_ < kBetweenCalls) return;
  since_ = now;
  int error = 0;
  auto socket = begin_to_connect(addresses_[next_++ % addresses_.size()], error);
  hello_.clear();
  is_proved_ = false;
  heard_.clear();
  if (socket) {
    socket_ = std::move(*socket);
  } else {
    note_end(error);
  }
}

// A probe asks each address once, unless one of them answers.
void OutgoingHandshake::note_end(int error) {
  refusals_ = error == ECONNREFUSED ? refusals_ + 1 : 0;
  is_over_ = is_probe_ && (error == 0 || next_ >= addresses_.size());
  if (error == 0) return;
  outcome_ = show(std::generic_category().message(error) +
                  (was_accepted_ ? ", after one had been accepted" : ""));
}

std::string OutgoingHandshake::show(const std::string& outcome) const {
  const Address& address = addresses_[(next_ - 1) % addresses_.size()];
  return sentence("the last call, to ", show_host(address), ": ", outcome);
}

// Less is known of a call that has just been accepted than of the one before.
std::string OutgoingHandshake::outcome() const {
  const bool is_accepted = socket_ && !hello_.empty();
  const bool is_silent = outcome_.empty() || base::now() - since_ > kPromptAnswer;
  return is_accepted && is_silent ? show(kNoAnswer) : outcome_;
}

std::optional<std::string> OutgoingHandshake::advance(const Identity& self, TimeoutHints& hints) {
  const Nanoseconds now = base::now();
  if (!hello_.empty()) {
    // Rank 0 answers the call when all ranks have connected, other ranks at once. A challenge to
    // prove the secret comes at once from any rank.
    const bool may_wait = is_to_rendezvous_ && is_trusted(self);
    if (may_wait || now - since_ <= kSilentCaller) return receive(self, hints);
    outcome_ = show(kNoAnswer);
    socket_.reset();
    return std::nullopt;
  }
  const int error = progress_of(socket_);
  const bool is_under_way = error == EINPROGRESS;
  if (is_under_way && now - since_ < kOneAddress) return std::nullopt;
  note_end(is_under_way ? ETIMEDOUT : error);
  if (error == 0 && !is_probe_) {
    send_hello(self);
  } else {
    socket_.reset();
  }
  return std::nullopt;
}

void OutgoingHandshake::send_hello(const Identity& self) {
  hello_ = write(Hello{.job = self.job,
                       .rank = self.rank,
                       .to = rank_,
                       .world = self.world,
                       .has_secret = self.has_secret(),
                       .nonce = base::random_name(),
                       .info = self.info});
  was_accepted_ = true;
  if (!send_message(socket_, MessageKind::hello, hello_)) socket_.reset();
}

// Another host may have the same pids.
std::string OutgoingHandshake::mark_of(const Identity& self) {
  return self.info.host + ' ' + base::mark_of_this_process();
}

bool OutgoingHandshake::has_seen_the_end() const {
  const bool is_connected = socket_ && !hello_.empty();
  return !is_connected && process_.has_ended();
}

std::optional<std::string> OutgoingHandshake::receive(const Identity& self, TimeoutHints& hints) {
  bool is_open = true;
  const bool may_be_long = is_to_rendezvous_ && is_trusted(self);
  const auto message =
      read_message(socket_, heard_, may_be_long ? kMostWelcomeBytes : kMostHelloBytes, is_open);
  if (!is_open) {
    outcome_ = show(heard_.empty() ? "it was accepted and then closed"
                                   : "the answer is not that of a rank");
    socket_.reset();  // the rank may be trying again, too
  }
  if (!message) return std::nullopt;
  heard_.clear();
  switch (message->kind) {
    case MessageKind::hello:
    case MessageKind::proof:
      socket_.reset();
      break;
    case MessageKind::challenge:
      receive_challenge(message->text, self, hints);
      break;
    case MessageKind::welcome:
      outcome_ = show("it was answered too late");
      is_over_ = is_trusted(self);
      if (is_over_) return message->text;
      distrust(self, hints);
      break;
    case MessageKind::refusal:
      // If several hosts have this address, the call may have reached another rank. The next
      // address may be right.
      PLAIT_CHECK(!is_to_rendezvous_, "rank ", self.rank, " called ", peer_of(socket_),
                  " to meet rank ", rank_, ": ", printable(message->text));
      outcome_ = show(printable(message->text));
      socket_.reset();
      break;
    case MessageKind::mismatch:
      if (is_to_rendezvous_ || is_trusted(self))
        throw Error(Code::mismatch, printable(message->text), rank_);
      distrust(self, hints);
      break;
    case MessageKind::mark:
      if (is_to_rendezvous_ && is_trusted(self) && message->text.starts_with(self.info.host + ' '))
        process_ = base::read_process_mark(message->text.substr(self.info.host.size() + 1));
      break;
    case MessageKind::interrupted:
    case MessageKind::missing:
      if (is_to_rendezvous_ && is_trusted(self)) {
        const std::size_t blank = message->text.find(' ');
        const auto rank = base::parse_int(message->text.substr(0, blank));
        throw Error(message->kind == MessageKind::missing ? Code::timeout : Code::peer_lost,
                    printable(message->text.substr(blank + 1)),
                    static_cast<int>(rank.value_or(rank_)));
      }
      socket_.reset();
      break;
  }
  return std::nullopt;
}

bool OutgoingHandshake::send_to_rank_0(MessageKind kind, const std::string& text,
                                       const Identity& self) const {
  const bool was_heard = is_to_rendezvous_ && socket_ && !hello_.empty();
  return was_heard && is_trusted(self) && send_message(socket_, kind, text);
}

void OutgoingHandshake::receive_challenge(const std::string& text, const Identity& self,
                                          TimeoutHints& hints) {
  const auto challenge = read_challenge(text);
  if (!self.has_secret() || is_proved_ || !challenge) return socket_.reset();
  const Proofs proofs = prove(self.key, hello_, challenge->nonce);
  if (!base::are_equal_in_constant_time(challenge->proof, proofs.listener)) {
    // The listener may be a rank with another secret. The refusal lets it report that.
    send_message(socket_, MessageKind::refusal, "");
    return distrust(self, hints);
  }
  is_proved_ = true;
  since_ = base::now();
  if (!send_message(socket_, MessageKind::proof, proofs.caller)) socket_.reset();
}

// Only rank 0 is at an address that the user has told: elsewhere an unrelated process may listen.
void OutgoingHandshake::distrust(const Identity& self, TimeoutHints& hints) {
  const std::string where = peer_of(socket_);
  socket_.reset();
  const std::string why =
      sentence("what answers there does not know the secret of rank ", self.rank, ": ",
               kSecretVariable, " must be the same for all ranks");
  PLAIT_CHECK(!is_to_rendezvous_, "rank ", self.rank, " called ", where, " to meet rank ", rank_,
              ": ", why);
  hints.of_rank[rank_] = sentence("rank ", self.rank, " called ", where, ": ", why);
}

void OutgoingHandshake::add_to(std::vector<pollfd>& sockets) const {
  if (!socket_) return;
  const auto events = static_cast<short>(hello_.empty() ? POLLOUT : POLLIN);
  sockets.push_back({.fd = socket_.get(), .events = events, .revents = 0});
}

}  // namespace plait::comm::tcp
