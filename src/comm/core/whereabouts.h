// The state that a rank shows to the others of its group: the call that it is in, the ranks that
// its threads wait for, and when it last polled its peers. If a deadline passes, the blame follows
// the waits from rank to rank. Two ranks in different calls under one number disagree.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "plait/tag.h"

namespace plait::comm {

inline constexpr std::size_t kLine = 64;

// The call that a rank is in: written by it, read by any, in five words that belong together.
class alignas(kLine) AnnouncedCall {
 public:
  void write(const Tag& tag);

  // When two ranks each write(), settle() and then read() the other's, at least one reads what the
  // other wrote.
  void settle();

  // False when none was ever written, or the owner is writing just now (or died writing).
  bool read(Tag& tag) const;

 private:
  std::atomic<std::uint64_t> version_;  // odd while being written
  std::array<std::atomic<std::uint64_t>, sizeof(Tag) / sizeof(std::uint64_t)> words_;
};

// Which rank a thread waits for. `beat` moves while the thread is awake: one whose beat stands
// still is not waiting, but stopped. `start` tells one wait from the next.
struct Wait {
  int peer = -1;  // -1: waits for no rank
  std::uint16_t start = 0;
  std::uint16_t beat = 0;
};

class alignas(kLine) AnnouncedWait {
 public:
  void begin(int peer);
  void renew(int peer);  // still the same wait, perhaps for another
  void end();
  Wait read() const;

 private:
  void write(const Wait& wait);

  std::atomic<std::uint64_t> word_;  // start << 48 | beat << 32 | peer + 1
};

// The activity of a rank, for the sentence about one that is late. Written as often as it polls its
// peers, about every 10 ms, and at the beginning and the end of a call; no rank waits for it.
struct Sign {
  enum class Doing : std::uint8_t {
    nothing,
    call,
    call_product,  // the product of an operator
    started,       // has a collective under way, and is in no call just now
    product        // of no call of the group: of a layer, or without communication
  };
  Doing doing = Doing::nothing;
  base::Nanoseconds at = 0;  // when it last polled; 0: not yet in this call
};

class alignas(kLine) SignOfLife {
 public:
  void write(const Sign& sign);
  void rest();  // in no call any more
  Sign read() const;

 private:
  std::atomic<std::uint64_t> word_;  // at << 3 | doing
};

// The rank that a thread waits for in another communicator, while this one's calls are its own to
// make: a rank that is awaited here may be no later than any other.
struct Elsewhere {
  std::int32_t peer = -1;  // by its rank here; -1: it is no rank of this group
  Operation operation = Operation::custom;
  std::uint16_t waits = 0;  // 0 or 1
};
static_assert(sizeof(Elsewhere) == sizeof(std::uint64_t));

class alignas(kLine) AnnouncedElsewhere {
 public:
  void write(const Elsewhere& elsewhere);
  Elsewhere read() const;

 private:
  std::atomic<std::uint64_t> word_;
};

// How many threads of a rank can publish at once which ranks they wait for.
inline constexpr int kWaits = 8;

// The memory in which a rank shows these to others. Zero bytes: nothing has happened.
struct Shown {
  AnnouncedCall call;
  std::array<AnnouncedWait, kWaits> waits;  // each written by the thread that has its ticket
  SignOfLife sign;
  AnnouncedElsewhere elsewhere;
};

// All of it as read, in plain bytes that may travel.
struct Whereabouts {
  std::array<Wait, kWaits> waits = {};
  Tag call = {};
  Sign sign = {};
  Elsewhere elsewhere = {};
  std::uint8_t has_call = 0;  // 0 or 1: as a bool, what a peer has sent could be neither
};

Whereabouts read(const Shown& shown);

// True if one of its threads waits for a rank.
bool says_it_waits(const Whereabouts& where);

// "rank 1 is in matmul_all_reduce, multiplying; last sign of life 12 ms ago"
std::string describe_doing(int rank, const Whereabouts& where);

// "all_reduce: rank 0 and rank 1 disagree on ...", where they differ.
std::string disagreement(const Tag& mine, int rank, int peer, const Tag& theirs);

// Follows the waits from `suspect`: 1 waits for 2 waits for 3, and 3 waits for no rank, or says
// that it waits but has not moved between the two readings, which hold all ranks.
int find_late(const std::vector<Whereabouts>& before, const std::vector<Whereabouts>& after,
              int suspect, int asker);

// Writes what one rank shows, on behalf of all its threads.
class Announcer {
 public:
  // `shown` outlives its calls.
  explicit Announcer(Shown& shown) : shown_(shown) {}

  void call(const Tag& tag) noexcept;
  void renew(bool multiplies) noexcept;  // it is still in its call
  void rest() noexcept { shown_.sign.rest(); }
  void started(base::Nanoseconds asked_at) noexcept;
  void product() const noexcept;

  // One thread at a time calls it: it waits elsewhere, and says so again now and then; until null.
  void elsewhere(const Elsewhere* elsewhere) noexcept;

  void settle() noexcept { shown_.call.settle(); }

  // The call that was announced last, which set-up messages carry as chunks do; before the first,
  // that of a group that is being made, equal on all ranks. Asked by the thread that announces.
  Tag last() const noexcept {
    Tag tag;
    return shown_.call.read(tag) ? tag : Tag{};
  }

  // Threads may wait at once: each has a ticket from its first call on, while there are any.
  static constexpr int kNoTicket = -1;
  int begin_waiting(int peer, int ticket) noexcept;
  void end_waiting(int ticket) noexcept;

  // The disagreement() with a peer that says it is in this call. Empty where this rank was in the
  // same one, or in none of this number as far as it remembers.
  std::string find_mismatch(int rank, int peer, const Tag& theirs) const;

 private:
  Shown& shown_;

  // This rank's last calls: peers may be some calls behind. Any thread of the rank may read
  // them.
  std::array<AnnouncedCall, 64> calls_ = {};

  int elsewhere_ticket_ = kNoTicket;

  std::atomic<std::uint32_t> tickets_{0};  // a bit for each of this rank's waits that is taken
};

}  // namespace plait::comm
