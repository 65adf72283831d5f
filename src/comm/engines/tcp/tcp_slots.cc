#include "comm/engines/tcp/tcp_slots.h"

#include <new>
#include <utility>

#include "base/check.h"

namespace plait::comm::tcp {
namespace {

constexpr std::uint64_t kCredit = 2;

}  // namespace

TcpSlots::TcpSlots(std::shared_ptr<TcpGroup> group, const MailboxDesc& desc)
    : group_(std::move(group)), desc_(desc) {
  int far_ranks = 0;
  for (const int process : group_->members().processes) {
    const bool is_near = mesh().near().has(process);
    peers_.push_back({.is_near = is_near, .place = is_near ? near_ranks_++ : far_ranks++});
  }
  const std::size_t channels = static_cast<std::size_t>(far_ranks) * desc.slots;
  outgoing_ = std::vector<Outgoing>(channels);
  incoming_ = std::vector<Incoming>(channels);
  memory_ = base::Region::allocate(channels * 4 * stride());
  owner_ = mesh().hold(memory_);
  number_ = mesh().add(*this);
}

void TcpSlots::set_peers(std::vector<std::uint32_t> numbers, std::vector<base::Region> near) {
  numbers_ = std::move(numbers);
  near_ = MappedChannels(desc_, place_of(group_->rank()), std::move(near));
}

void TcpSlots::populate() {
  memory_.populate(0, memory_.bytes());
  near_.populate();
}

// The kernel reads what was posted from this mailbox's memory, which the frames under way keep; but
// frames move only while a rank calls plait, so they are sent before this rank may leave.
TcpSlots::~TcpSlots() {
  if (group_->in_child()) {
    // The mesh is the parent's, and its mutex may be held by a thread that this process lacks. What
    // is registered is the parent's too.
    [[maybe_unused]] const auto* forgotten =
        new (std::nothrow) std::pair(std::move(group_), std::move(owner_));
    return;
  }
  send_rest();
  mesh().remove(number_);
  mesh().let_go(owner_);
}

void TcpSlots::send_rest() noexcept {
  if (numbers_.empty()) return;
  group_->wait_for_peers([&](int process) { return mesh().is_sent(process); },
                         [&](int peer) {
                           return base::sentence("rank ", group_->rank(),
                                                 " ends a mailbox and waits for rank ", peer,
                                                 " to receive the last chunks");
                         });
}

std::byte* TcpSlots::place_in(int source, int slot, std::uint64_t chunk) const {
  return memory_.data() + (channel_of(source, slot) * 4 + chunk % 2) * stride();
}

std::byte* TcpSlots::place_out(int peer, int slot, std::uint64_t chunk) const {
  return memory_.data() + (channel_of(peer, slot) * 4 + 2 + chunk % 2) * stride();
}

// Memory ordering: the receiver has read chunk n - 2 before it gave its credit back, so its place
// may be written again by the thread that sees it released (acquire; pairs with receive()).
bool TcpSlots::has_room(int peer, int slot) {
  if (is_near(peer)) return near_.has_room(place_of(peer), slot);
  const Outgoing& channel = outgoing(peer, slot);
  return channel.posted.load(std::memory_order_relaxed) -
             channel.released.load(std::memory_order_acquire) <
         kCredit;
}

bool TcpSlots::has_room_by_now(int peer, int slot) {
  if (has_room(peer, slot)) return true;
  mesh().move_now_and_then();
  return has_room(peer, slot);
}

Vacancy TcpSlots::outbox(int peer, int slot) {
  if (!has_room_by_now(peer, slot)) return {};
  if (is_near(peer)) return {.place = near_.outbox(place_of(peer), slot)};
  const std::uint64_t posted = outgoing(peer, slot).posted.load(std::memory_order_relaxed);
  return {.place = place_out(peer, slot, posted + 1)};
}

bool TcpSlots::post(int peer, int slot, const Tag& tag, std::size_t bytes) {
  if (!has_room_by_now(peer, slot)) return false;
  if (is_near(peer)) {
    near_.post(place_of(peer), slot, tag, bytes);
    wake(peer);
  } else {
    send(peer, slot, tag, bytes);
  }
  return true;
}

// Another thread of this rank may wait for what it posts to itself, or releases.
void TcpSlots::wake(int near_peer) {
  if (near_peer == group_->rank()) return mesh().wake();
  mesh().wake(group_->members().processes[near_peer]);
}

void TcpSlots::send(int peer, int slot, const Tag& tag, std::size_t bytes) {
  const std::uint64_t chunk =
      outgoing(peer, slot).posted.fetch_add(1, std::memory_order_relaxed) + 1;
  // The memory lives until the frame has gone.
  mesh().send(group_->members().processes[peer],
              {.kind = Kind::chunk,
               .receiver = numbers_[peer],
               .slot = static_cast<std::uint32_t>(slot),
               .bytes = bytes,
               .tag = tag},
              place_out(peer, slot, chunk), memory(), Mesh::Urgency::now);
}

// Called under the mesh's mutex. A sender that goes beyond its credit is not believed.
std::byte* TcpSlots::place_for(int process, const Frame& frame) {
  const int source = group_->members().rank_of(process);
  if (source < 0 || is_near(source) || frame.slot >= static_cast<std::uint32_t>(desc_.slots) ||
      frame.bytes > desc_.slot_bytes) {
    return nullptr;
  }
  Incoming& channel = incoming(source, static_cast<int>(frame.slot));
  if (channel.begun - channel.taken.load(std::memory_order_acquire) >= kCredit) return nullptr;
  return place_in(source, static_cast<int>(frame.slot), ++channel.begun);
}

// Memory ordering: a chunk's bytes and its frame are written before it counts as arrived (release;
// pairs with has_come()). A credit likewise, see has_room().
bool TcpSlots::receive(int process, const Frame& frame, std::string /*text*/) {
  const int peer = group_->members().rank_of(process);
  if (peer < 0 || is_near(peer) || frame.slot >= static_cast<std::uint32_t>(desc_.slots))
    return false;
  const int slot = static_cast<int>(frame.slot);
  if (frame.kind == Kind::credit) {
    // The peer can only have received what was posted before.
    Outgoing& channel = outgoing(peer, slot);
    const std::uint64_t posted = channel.posted.load(std::memory_order_relaxed);
    if (channel.released.load(std::memory_order_relaxed) >= posted) return false;
    channel.released.fetch_add(1, std::memory_order_release);
    return true;
  }
  if (frame.kind != Kind::chunk) return false;
  Incoming& channel = incoming(peer, slot);
  const std::uint64_t chunk = channel.arrived.load(std::memory_order_relaxed) + 1;
  channel.frames[chunk % 2] = frame;
  channel.arrived.store(chunk, std::memory_order_release);
  return true;
}

bool TcpSlots::has_come(int source, int slot) {
  if (is_near(source)) return near_.has_come(place_of(source), slot);
  const Incoming& channel = incoming(source, slot);
  return channel.arrived.load(std::memory_order_acquire) !=
         channel.taken.load(std::memory_order_relaxed);  // written by the thread that asks
}

Arrival TcpSlots::next(int source, int slot) {
  if (is_near(source)) return near_.arrival(place_of(source), slot);
  if (!has_come(source, slot)) return {};
  const Incoming& channel = incoming(source, slot);
  const std::uint64_t chunk = channel.taken.load(std::memory_order_relaxed) + 1;
  const Frame& frame = channel.frames[chunk % 2];
  return {.data = place_in(source, slot, chunk),
          .bytes = static_cast<std::size_t>(frame.bytes),
          .tag = &frame.tag};
}

// A chunk of a near rank that is not here may wait for frames of this rank's to others: they move
// too.
Arrival TcpSlots::inbox(int source, int slot) {
  const Arrival here = next(source, slot);
  if (here.data != nullptr) return here;
  mesh().move_now_and_then();
  return next(source, slot);
}

bool TcpSlots::release(int source, int slot) {
  if (!has_come(source, slot)) return false;
  if (is_near(source)) {
    near_.release(place_of(source), slot);
    wake(source);
  } else {
    send_credit(source, slot);
  }
  return true;
}

// Memory ordering: the place may be written again as soon as the chunk counts as taken (release;
// pairs with place_for()).
void TcpSlots::send_credit(int source, int slot) {
  Incoming& channel = incoming(source, slot);
  const std::uint64_t chunk = channel.taken.load(std::memory_order_relaxed) + 1;
  // A call of plait's goes on moving frames; a program may compute for long after this.
  const auto urgency = channel.frames[chunk % 2].tag.operation == Operation::custom
                           ? Mesh::Urgency::now
                           : Mesh::Urgency::soon;
  channel.taken.store(chunk, std::memory_order_release);
  mesh().send(group_->members().processes[source],
              {.kind = Kind::credit,
               .receiver = numbers_[source],
               .slot = static_cast<std::uint32_t>(slot)},
              nullptr, nullptr, urgency);
}

}  // namespace plait::comm::tcp
