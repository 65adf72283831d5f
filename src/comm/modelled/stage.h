// Where modelled ranks take turns: one seat for each, and what they share.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/fiber.h"
#include "comm/group.h"
#include "comm/modelled/seat.h"
#include "comm/modelled/world.h"

namespace plait::comm::modelled {

struct Slots;

class World::Stage {
 public:
  explicit Stage(const WorldOptions& options);
  ~Stage();

  const WorldOptions& options() const { return options_; }
  int world() const { return options_.ranks; }
  Wires& wires() { return wires_; }
  Seat& seat(int rank) { return *seats_[static_cast<std::size_t>(rank)]; }
  const Seat& seat(int rank) const { return *seats_[static_cast<std::size_t>(rank)]; }

  // Plays all ranks to their end.
  void play(const std::function<void(int rank)>& be_rank);

  // The calling rank goes on at `until`, or earlier where it is woken; the others take their turns.
  void sleep(Seat& seat, Nanoseconds until);
  void wake(Seat& seat, Nanoseconds at);

  // Collective: what every rank has brought, in rank order.
  using Gifts = std::shared_ptr<const std::vector<std::string>>;
  Gifts meet(Seat& seat, const std::string& mine, const Tag& tag);

  // The slots of a mailbox: of which of a rank's groups it is, and which of those that this has
  // made. The first is what the group's collectives use, and has memory always.
  struct Which {
    int group, number;
    auto operator<=>(const Which&) const = default;
  };
  Slots& slots(const Which& which, const MailboxDesc& desc);

  // How the whole group ends; the first record of each kind stands.
  bool has_ended(End end) const { return !records_[static_cast<std::size_t>(end)].empty(); }
  const Failure& record_of(End end) const {
    return records_[static_cast<std::size_t>(end)].front();
  }
  void end(End end, const Failure& failure);
  void raise_if_ended() const;

 private:
  struct Meeting {
    std::shared_ptr<std::vector<std::string>> gifts;
    std::vector<bool> here;
    int count = 0;
    bool over = false;
  };
  std::shared_ptr<Meeting> next_meeting() const;
  void wake_all(Nanoseconds at);
  void refuse_deadlock();

  WorldOptions options_;
  Wires wires_;
  std::vector<std::unique_ptr<Seat>> seats_;
  std::set<std::pair<Nanoseconds, int>> agenda_;  // who goes on when
  std::shared_ptr<Meeting> meeting_;
  std::map<Which, std::unique_ptr<Slots>> slots_;
  std::array<std::vector<Failure>, kEnds> records_;  // one at most of each kind
};

}  // namespace plait::comm::modelled
