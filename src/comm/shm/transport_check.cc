#include "comm/shm/transport_check.h"

#include <unistd.h>

#include <utility>

#include "comm/build_name.h"
#include "comm/same_transport.h"
#include "comm/shm/assembly.h"

namespace plait::comm::shm {
namespace {

using base::Nanoseconds;

// Most jobs have met by then, and none of their ranks has had to call.
constexpr Nanoseconds kFirstLook = 50 * base::kMillisecond;
constexpr Nanoseconds kBetweenLooks = 20 * base::kMillisecond;

// How long rank 0 stays to tell the ranks that come later that they are refused.
constexpr Nanoseconds kLinger = base::kSecond;

}  // namespace

// Where the place is taken, or can't be had, rank 0 goes without it: the check is no condition of
// connecting.
TransportCheck::TransportCheck(const Site& site)
    : rank_(site.place.rank),
      world_(site.place.world),
      transport_(site.transport),
      look_at_(base::now() + (rank_ == 0 ? 0 : kFirstLook)) {
  const std::string name = name_of_job(site.place.job);
  try {
    if (rank_ == 0) {
      porch_.emplace(MeetingPlace(name, base::now()));
    } else {
      finder_.emplace(name);
    }
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch)
  }
}

void TransportCheck::look() {
  const Nanoseconds now = base::now();
  if (now < look_at_) return;
  look_at_ = now + kBetweenLooks;
  if (porch_) look_as_first(*porch_);
  if (finder_) look_as_other(*finder_);
}

void TransportCheck::look_as_first(Porch& porch) {
  std::vector<Guest> heard;
  try {
    heard = porch.wait({}, 0);
  } catch (const Error&) {  // there are no descriptors for it
    guests_.clear();        // which hold some
    return porch_.reset();
  }
  const Guest* other = nullptr;
  for (Guest& guest : heard) {
    // Another build is refused by the transport.
    if (guest.said.build == build_name()) guests_.push_back(std::move(guest));
  }
  for (const Guest& guest : guests_) {
    if (guest.said.transport != transport_) other = &guest;
  }
  if (other != nullptr) refuse(*other, porch);
}

void TransportCheck::refuse(const Guest& guest, Porch& porch) {
  const std::string verdict =
      encode_failure(transports_differ(guest.said.rank, guest.said.transport, 0, transport_));
  for (const Guest& one : guests_) base::send_message(one.socket, verdict, base::Fd());
  int told = static_cast<int>(guests_.size());
  for (const Nanoseconds end = base::now() + kLinger; told < world_ - 1 && base::now() < end;) {
    for (const Guest& late : porch.wait({}, end - base::now())) {
      base::send_message(late.socket, verdict, base::Fd());
      ++told;
    }
  }
  raise_failure(verdict);
}

void TransportCheck::look_as_other(Finder& finder) {
  if (!first_) {
    try {
      auto found = finder.call();
      if (!found) return;
      first_ = std::move(*found);
    } catch (const Error&) {  // another user's process is there
      return finder_.reset();
    }
    const Hello hello = {.rank = rank_,
                         .world = world_,
                         .pid = ::getpid(),
                         .build = std::string(build_name()),
                         .transport = transport_};
    base::send_message(first_, write(hello), base::Fd());
  }
  base::Message message;
  const base::Delivery delivery = base::receive_message(first_, message);
  if (delivery == base::Delivery::done && is_failure(message.bytes)) raise_failure(message.bytes);
  if (delivery == base::Delivery::closed) first_.reset();
}

}  // namespace plait::comm::shm
