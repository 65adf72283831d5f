// A page that shows a rank's state to the others of its group: memory of the rank's own, which all
// map.
//
// Each line is written by its owner alone, except the doorbell (rung by posters), `standing` (where
// others give up the owner) and, on rank 0's page, `ended_by`. A rank that is killed in the middle
// of anything leaves every other rank able to go on reading: nothing here is ever held.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/function_ref.h"
#include "comm/core/group.h"
#include "comm/core/whereabouts.h"
#include "comm/survivors/standing.h"
#include "plait/error.h"

namespace plait::comm {

// Processors fetch lines in pairs: what different ranks write lies that far apart.
inline constexpr std::size_t kPair = 2 * kLine;

// Sleeps until a peer has done something; costs the peer nothing while no rank sleeps.
class alignas(kLine) Doorbell {
 public:
  // Memory ordering: a poster stores its flag and then loads sleepers_; a sleeper increments
  // sleepers_ and then loads the flag. Were both pairs free to be reordered, each could miss the
  // other, and the sleeper would sleep through. A full fence in every post would forbid it, at the
  // price of waiting for the chunk's own stores to leave the core, 0.1 µs a post. The sleeper has
  // time, and makes the kernel put that fence into every poster (base::heavy_fence): a post before
  // it is seen in the last poll, a post after it sees the sleeper. Where the kernel can't, a nap is
  // kept so short that a lost wake-up does not matter.
  //
  // To be called right after the store of the flag.
  void ring();

  // Sleeps until rung, at most `longest`; returns at once where ready() says yes.
  void sleep(base::Nanoseconds longest, base::FunctionRef<bool()> ready);

 private:
  std::atomic<std::uint32_t> rings_;
  std::atomic<std::uint32_t> sleepers_;
};

struct RankPage {
  Doorbell doorbell;
  Shown shown;
  Standing standing;

  alignas(kLine) std::atomic<std::uint32_t> left;  // 1: gone in good order

  // On rank 0's page, by End: 1 + the rank whose record below ended the group; 0 while all is well.
  alignas(kLine) std::array<std::atomic<std::uint32_t>, kEnds> ended_by;

  // This rank's own account of an end; others read it after ended_by names this rank.
  struct alignas(kLine) Record {
    Code code;
    std::int32_t culprit;
    std::array<char, 500> sentence;
  };
  std::array<Record, kEnds> records;
};

}  // namespace plait::comm
