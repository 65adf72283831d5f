#include "comm/meet/incoming_handshakes.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/hmac.h"
#include "base/random.h"
#include "comm/control/address.h"
#include "comm/control/rendezvous.h"

namespace plait::comm::tcp {

using base::Nanoseconds;
using base::sentence;

namespace {

constexpr Nanoseconds kSilentWhenFull = 250 * base::kMillisecond;
constexpr std::size_t kMostUnknown = 64;
constexpr int kMostAtOnce = 32;

// Short enough for both jobs in what printable() shows of a refusal.
std::string show_job(const std::string& job) {
  constexpr std::size_t kMost = 160;
  return '"' + printable(std::string_view(job).substr(0, kMost)) + '"';
}

// Why a caller is not a rank that this one waits for; empty: it may be one.
std::string difference_of(const Hello& hello, const Identity& self) {
  if (hello.job != self.job) {
    return sentence("rank ", hello.rank, " is of the job ", show_job(hello.job), ", rank ",
                    self.rank, " of ", show_job(self.job),
                    ": launcher, job and restart must be the same for all ranks");
  }
  if (hello.world != self.world) {
    return sentence("rank ", hello.rank, " was started in a world of ", hello.world, ", rank ",
                    self.rank, " in one of ", self.world);
  }
  if (hello.has_secret != self.has_secret()) {
    return sentence("rank ", hello.rank, hello.has_secret ? " has" : " has not", " set ",
                    kSecretVariable, ", rank ", self.rank, self.has_secret() ? " has" : " has not",
                    ": it must be the same for all ranks");
  }
  return "";
}

void answer_another_build(const base::Fd& socket, const std::string& text, const Identity& self,
                          TimeoutHints& hints) {
  const std::string build = build_in(text);
  if (build.empty() || build == self.info.build) return;
  const std::string why = sentence("a rank that called rank ", self.rank, " from ", peer_of(socket),
                                   " runs plait ", build, ", rank ", self.rank, " plait ",
                                   self.info.build, ": all ranks must run the same build");
  send_message(socket, MessageKind::mismatch, why);
  if (hints.of_any.empty()) hints.of_any = why;
}

}  // namespace

IncomingHandshakes::IncomingHandshakes(int world)
    : most_(static_cast<std::size_t>(world) + kMostUnknown) {}

// A flood of callers must neither keep this rank from its deadline nor push out a rank that has
// called and is about to speak: while there are many, the rest waits in the kernel's queue.
void IncomingHandshakes::accept(const base::Fd& listener) {
  const Nanoseconds now = base::now();
  if (!has_room()) {
    std::erase_if(callers_, [&](const Caller& one) { return now - one.since > kSilentWhenFull; });
  }
  for (int turn = 0; turn < kMostAtOnce && has_room(); ++turn) {
    std::optional<base::Fd> socket;
    try {
      socket = accept_caller(listener);
    } catch (const Error&) {
      if (callers_.empty()) throw;
      return drop_unknown_callers();
    }
    if (!socket) break;
    callers_.push_back({.socket = std::move(*socket), .since = now});
  }
}

// If this process has no descriptors left, callers that are no ranks must have taken them. From now
// on there may be half as many callers. A rank among them calls again.
void IncomingHandshakes::drop_unknown_callers() {
  most_ = std::max<std::size_t>(callers_.size() / 2, 1);
  std::stable_partition(callers_.begin(), callers_.end(),
                        [](const Caller& one) { return one.hello.has_value(); });
  callers_.erase(callers_.begin() + static_cast<std::ptrdiff_t>(callers_.size() / 2),
                 callers_.end());
}

void IncomingHandshakes::receive(const Identity& self, TimeoutHints& hints, Admit admit) {
  std::erase_if(callers_, [&](Caller& caller) { return is_finished(caller, self, hints, admit); });
}

// A caller has so long for all that it says: saying it byte by byte gains it nothing.
bool IncomingHandshakes::is_finished(Caller& caller, const Identity& self, TimeoutHints& hints,
                                     Admit admit) {
  bool is_open = true;
  const auto message = read_message(caller.socket, caller.said, kMostHelloBytes, is_open);
  if (!message) return !is_open || base::now() - caller.since > kSilentCaller;
  caller.said.clear();
  if (!caller.hello)
    return message->kind != MessageKind::hello || answer(caller, message->text, self, hints, admit);
  if (message->kind == MessageKind::proof &&
      base::are_equal_in_constant_time(message->text, caller.proof)) {
    admit(caller.socket, *caller.hello);
    return true;
  }
  hints.of_rank[caller.hello->rank] =
      sentence("a caller from ", peer_of(caller.socket), " said that it was rank ",
               caller.hello->rank, " and did not know the secret of rank ", self.rank, ": ",
               kSecretVariable, " must be the same for all ranks");
  return true;
}

// False: the caller has been challenged, and is to prove that it knows the secret. No caller is
// believed before that, and none can do more than be named in the sentence of a timeout.
bool IncomingHandshakes::answer(Caller& caller, const std::string& text, const Identity& self,
                                TimeoutHints& hints, Admit admit) {
  auto hello = read_hello(text);
  if (!hello) {
    answer_another_build(caller.socket, text, self, hints);
    return true;
  }
  if (hello->to != self.rank || hello->rank == self.rank) {
    send_message(caller.socket, MessageKind::refusal,
                 sentence("here is rank ", self.rank, " of ", self.world));
    return true;
  }
  if (const std::string why = difference_of(*hello, self); !why.empty()) {
    send_message(caller.socket, MessageKind::refusal, why);
    if (hello->rank < self.world) hints.of_rank[hello->rank] = why;
    return true;
  }
  if (!self.has_secret()) {
    admit(caller.socket, *hello);
    return true;
  }
  const std::string nonce = base::random_name();
  Proofs proofs = prove(self.key, text, nonce);
  caller.hello = std::move(*hello);
  caller.proof = std::move(proofs.caller);
  return !send_message(caller.socket, MessageKind::challenge,
                       write(Challenge{.nonce = nonce, .proof = proofs.listener}));
}

void IncomingHandshakes::add_to(std::vector<pollfd>& sockets) const {
  for (const Caller& caller : callers_)
    sockets.push_back({.fd = caller.socket.get(), .events = POLLIN, .revents = 0});
}

}  // namespace plait::comm::tcp
