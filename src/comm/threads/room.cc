#include "comm/threads/room.h"

#include <algorithm>
#include <chrono>
#include <exception>

#include "base/check.h"
#include "base/text.h"
#include "comm/group.h"

namespace plait::comm::threads {

Room::Room(int world)
    : world_(world),
      seated_(world),
      left_(world),
      gifts_(std::make_shared<std::vector<Gift>>(world)),
      here_(world) {}

void Room::enter(int rank) {
  PLAIT_CHECK(rank >= 0 && rank < world_, "join: there is no rank ", rank, " in a world of ",
              world_);
  const std::lock_guard lock(mutex_);
  PLAIT_CHECK(!left_[rank], "join: rank ", rank, " of ", world_,
              " has joined and left before; a group that failed or was left needs a new one");
  PLAIT_CHECK(!seated_[rank], "join: two threads claim rank ", rank, " of ", world_);
  seated_[rank] = true;
}

void Room::leave(int rank) noexcept {
  const std::lock_guard lock(mutex_);
  left_[rank] = true;
  changed_.notify_all();
}

std::vector<int> Room::absent() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < world_; ++rank) {
    if (!here_[rank]) ranks.push_back(rank);
  }
  return ranks;
}

namespace {

std::exception_ptr refusal_of(const Rendezvous::Watch& watch, int peer) noexcept {
  try {
    if (watch) watch(peer);
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

std::vector<Room::Gift> Room::meet(int rank, Gift mine, base::Nanoseconds timeout,
                                   const Rendezvous::Watch& watch) {
  std::unique_lock lock(mutex_);
  const Gifts gifts = gifts_;
  const std::uint64_t meeting = meeting_;
  (*gifts)[rank] = std::move(mine);
  here_[rank] = true;
  if (++count_ == world_) {
    ++meeting_;
    gifts_ = std::make_shared<std::vector<Gift>>(world_);
    here_.assign(world_, false);
    count_ = 0;
    changed_.notify_all();
  }
  const base::Nanoseconds deadline = base::now() + timeout;
  while (meeting_ == meeting) {
    const std::vector<int> late = absent();
    const auto gone = std::find_if(late.begin(), late.end(), [&](int peer) { return left_[peer]; });
    // Before anybody is blamed: it may have left because the group had failed.
    lock.unlock();
    const std::exception_ptr refusal = refusal_of(watch, late.front());
    lock.lock();
    // All have come meanwhile: what the others did afterwards is for the next call to tell.
    if (meeting_ != meeting) break;
    if (refusal != nullptr) std::rethrow_exception(refusal);
    if (gone != late.end()) {
      throw Error(Code::peer_lost,
                  base::sentence("rank ", rank, " waits to meet rank ", *gone,
                                 ", which has left the group"),
                  *gone);
    }
    if (base::now() >= deadline) {
      throw Error(
          Code::timeout,
          base::sentence("rank ", rank, " has waited ", base::show_duration(timeout), " for rank",
                         late.size() > 1 ? "s " : " ", base::show_list(late), " of ", world_),
          late.front());
    }
    changed_.wait_for(lock, std::chrono::milliseconds(20));
  }
  return *gifts;
}

std::shared_ptr<Room> Room::side_room(int leader, int world) {
  const std::lock_guard lock(mutex_);
  // Rooms of earlier meetings have been found by all ranks that look for them.
  side_rooms_.erase(side_rooms_.begin(), side_rooms_.lower_bound({meeting_, 0}));
  std::weak_ptr<Room>& known = side_rooms_[{meeting_, leader}];
  std::shared_ptr<Room> room = known.lock();
  if (room == nullptr) {
    room = std::make_shared<Room>(world);
    known = room;
  }
  return room;
}

std::string Room::fresh_name() {
  const std::lock_guard lock(mutex_);
  return std::to_string(++names_);
}

std::shared_ptr<Room> Room::named_room(const std::string& name, int world) {
  const std::lock_guard lock(mutex_);
  std::weak_ptr<Room>& known = named_rooms_[name];
  std::shared_ptr<Room> room = known.lock();
  if (room == nullptr) {
    room = std::make_shared<Room>(world);
    known = room;
  }
  return room;
}

std::size_t Room::side_rooms() {
  const std::lock_guard lock(mutex_);
  return side_rooms_.size();
}

namespace {

class Seat final : public Rendezvous {
 public:
  Seat(std::shared_ptr<Room> room, int rank, base::Nanoseconds timeout)
      : room_(std::move(room)), rank_(rank), timeout_(timeout) {
    room_->enter(rank);
  }
  ~Seat() override { room_->leave(rank_); }

  int rank() const override { return rank_; }
  int world() const override { return room_->world(); }
  void set_timeout(base::Nanoseconds timeout) override { timeout_ = timeout; }

  std::vector<std::string> all_gather(const std::string& mine, const Watch& watch) override {
    std::vector<std::string> all;
    for (Room::Gift& gift : meet({mine, {}}, watch)) all.push_back(std::move(gift.bytes));
    return all;
  }

  std::vector<base::Region> share(std::size_t bytes, const std::string& purpose,
                                  const Watch& watch) override {
    const auto gifts = meet({purpose, base::Region::allocate(bytes)}, watch);
    std::vector<base::Region> regions;
    for (int peer = 0; peer < world(); ++peer) {
      if (watch && gifts[peer].bytes != purpose) watch(rank_);  // it may know which calls these are
      check_same_purpose(rank_, purpose, peer, gifts[peer].bytes);
      regions.push_back(gifts[peer].region);
    }
    return regions;
  }

  std::unique_ptr<Rendezvous> subgroup(const std::vector<int>& members,
                                       const Watch& watch) override {
    // Two meetings: after the first all agree on its number, and no rank goes on to another before
    // the second, when every room has been found.
    meet({}, watch);
    const auto room = members.empty()
                          ? nullptr
                          : room_->side_room(members.front(), static_cast<int>(members.size()));
    meet({}, watch);
    if (room == nullptr) return nullptr;
    const auto me = std::find(members.begin(), members.end(), rank_);
    return std::make_unique<Seat>(room, static_cast<int>(me - members.begin()), timeout_);
  }

  std::unique_ptr<Rendezvous> regroup(const std::vector<int>& members,
                                      Regrouping::Exchange exchange,
                                      const Watch& /*watch*/) override {
    const bool leads = members.front() == rank_;
    const std::string name = exchange(leads ? room_->fresh_name() : "").front();
    const auto room = room_->named_room(name, static_cast<int>(members.size()));
    const auto me = std::find(members.begin(), members.end(), rank_);
    return std::make_unique<Seat>(room, static_cast<int>(me - members.begin()), timeout_);
  }

  bool has_ended(int /*peer*/) const override {
    return false;
  }  // a thread that ends leaves the group
  std::string describe(int /*peer*/) const override { return "a thread of this process"; }

 private:
  std::vector<Room::Gift> meet(Room::Gift mine, const Watch& watch) {
    return room_->meet(rank_, std::move(mine), timeout_, watch);
  }

  std::shared_ptr<Room> room_;
  int rank_;
  base::Nanoseconds timeout_;
};

}  // namespace

std::unique_ptr<Rendezvous> sit_down(std::shared_ptr<Room> room, int rank,
                                     base::Nanoseconds timeout) {
  return std::make_unique<Seat>(std::move(room), rank, timeout);
}

}  // namespace plait::comm::threads
