#include "comm/meet/rendezvous_check.h"

#include <utility>

#include "comm/control/address.h"
#include "comm/control/rendezvous.h"
#include "comm/meet/handshake.h"
#include "comm/meet/peer_info.h"

namespace plait::comm::tcp {
namespace {

// Most jobs have met by then, and none of their ranks has had to look up rank 0's address.
constexpr base::Nanoseconds kFirstCall = 500 * base::kMillisecond;
constexpr base::Nanoseconds kPollInterval = 10 * base::kMillisecond;

// How long rank 0 stays to tell the ranks that come later that they are refused.
constexpr base::Nanoseconds kStay = 2 * base::kSecond;

// MPI needs descriptors too. Beyond these, ranks don't hear of a difference that is found later.
constexpr std::size_t kMostAlike = 128;

}  // namespace

RendezvousCheck::RendezvousCheck(const Site& site) noexcept {
  try {
    begin(site);
  } catch (const std::exception&) {  // the check is no condition of connecting
    self_.reset();
  }
}

void RendezvousCheck::begin(const Site& site) {
  const auto rendezvous = rendezvous_from_environment();
  if (!rendezvous) return;
  const bool is_first = site.place.rank == 0;
  if (is_first) {
    listener_ = listen_at_port(rendezvous->port);
    callers_.emplace(site.place.world);
  }
  self_ = identity_of(site);
  self_->info = info_of(site, rendezvous->port);
  poll_at_ = base::now() + (is_first ? 0 : kFirstCall);
}

void RendezvousCheck::poll() {
  const base::Nanoseconds now = base::now();
  if (!self_ || now < poll_at_) return;
  poll_at_ = now + kPollInterval;
  try {
    if (callers_) {
      poll_as_first(*self_, *callers_);
    } else {
      poll_as_other(*self_);
    }
  } catch (const Error& error) {
    if (error.code() == Code::mismatch) throw;
    self_.reset();  // there are no descriptors for it, or another job's rank is there
    alike_.clear();
    callers_.reset();
    call_.reset();
    listener_.reset();
  }
}

void RendezvousCheck::poll_as_first(const Identity& self, IncomingHandshakes& callers) {
  receive(self, callers);
  if (difference_) refuse(*difference_, self, callers);
}

void RendezvousCheck::receive(const Identity& self, IncomingHandshakes& callers) {
  callers.accept(listener_);
  callers.receive(self, hints_, [&](base::Fd& socket, const Hello& hello) {
    if (!difference_) difference_ = find_difference(hello.rank, hello.info, 0, self.info);
    if (difference_) {
      // A rank that calls again after it was told wants the next group, and goes on calling.
      if (told_.insert(hello.rank).second)
        send_message(socket, MessageKind::mismatch, difference_->what());
    } else if (alike_.size() < kMostAlike) {
      alike_.insert_or_assign(hello.rank, std::move(socket));
    } else {
      send_message(socket, MessageKind::welcome, "");
    }
  });
}

void RendezvousCheck::refuse(const Error& why, const Identity& self, IncomingHandshakes& callers) {
  for (const auto& [rank, socket] : alike_) {
    if (told_.insert(rank).second) send_message(socket, MessageKind::mismatch, why.what());
  }
  const base::Nanoseconds end = base::now() + kStay;
  while (static_cast<int>(told_.size()) < self.world - 1 && base::now() < end) {
    base::sleep_until(base::now() + kPollInterval);
    receive(self, callers);
  }
  throw Error(why);
}

// The address is looked up once, because that may take a minute.
void RendezvousCheck::poll_as_other(const Identity& self) {
  if (!call_) {
    const auto rendezvous = rendezvous_from_environment();
    if (!rendezvous) return;
    if (!lookup_) lookup_.emplace(rendezvous->host, rendezvous->port);
    const auto found = lookup_->wait(base::now());
    if (!found) return;
    call_.emplace(0, found->addresses, OutgoingHandshake::At::rendezvous);
  }
  if (call_->is_over()) return;
  if (call_->has_socket()) {
    call_->advance(self, hints_);
  } else {
    call_->begin();
  }
}

}  // namespace plait::comm::tcp
