// Where the threads of a group meet.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/region.h"
#include "comm/mapped/rendezvous.h"

namespace plait::comm::threads {

class Room {
 public:
  explicit Room(int world);

  int world() const { return world_; }

  // Takes the seat of `rank`; refuses a seat that is out of range or was taken before.
  void enter(int rank);
  void leave(int rank) noexcept;

  // What one rank brings to a meeting.
  struct Gift {
    std::string bytes;
    base::Region region;
  };

  // Collective: returns what all ranks brought, in rank order.
  std::vector<Gift> meet(int rank, Gift mine, base::Nanoseconds timeout,
                         const Rendezvous::Watch& watch);

  // The room of a sub-group led by `leader`, agreed on at the last meeting; the first of its ranks
  // to call makes it.
  std::shared_ptr<Room> side_room(int leader, int world);

  // The room of a group that goes on without lost ranks, under a name that this room has given out
  // once; the first of its ranks to call makes it.
  std::string fresh_name();
  std::shared_ptr<Room> named_room(const std::string& name, int world);

  // How many are remembered for ranks that have yet to call side_room().
  std::size_t side_rooms();

 private:
  using Gifts = std::shared_ptr<std::vector<Gift>>;

  std::vector<int> absent() const;

  const int world_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> seated_;
  std::vector<bool> left_;

  // The meeting that is filling up. The rank that completes it starts the next one, and ranks that
  // still sleep keep their own through the shared pointer.
  Gifts gifts_;
  std::vector<bool> here_;
  int count_ = 0;
  std::uint64_t meeting_ = 0;
  std::map<std::pair<std::uint64_t, int>, std::weak_ptr<Room>> side_rooms_;
  std::uint64_t names_ = 0;
  std::map<std::string, std::weak_ptr<Room>> named_rooms_;
};

std::unique_ptr<Rendezvous> sit_down(std::shared_ptr<Room> room, int rank,
                                     base::Nanoseconds timeout);

}  // namespace plait::comm::threads
