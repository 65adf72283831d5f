// Agreements of the ranks that are left when a group has failed, in memory that all have mapped:
// docs/design/0018 says why all that live get the same answer.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/function_ref.h"
#include "comm/core/whereabouts.h"
#include "comm/survivors/regrouping.h"

namespace plait::comm {

// The texts of a rank for the agreements of survivors(), whose numbers count from 1.
class alignas(kLine) Standing {
 public:
  static constexpr std::size_t kMostBytes = 255;

  enum class Part : std::uint8_t { not_yet, brought, given_up };

  // Called by the owner. False: it has been given up.
  bool bring(std::uint64_t agreement, const std::string& text);

  // Any rank may call it: the owner takes part in this agreement no more, nor in a later one. It
  // still does if it has brought its text before.
  void give_up(std::uint64_t agreement);

  Part part(std::uint64_t agreement) const;

  // Once it is brought, and until the owner brings that of the agreement after the next. A rank may
  // be stopped for so long between part() and text() that its text is overwritten while it reads.
  // It has then been given up, since the owner had to complete the agreement between the two. Its
  // own bring() of that agreement fails, and what it has read is never used.
  std::string text(std::uint64_t agreement) const;

 private:
  std::atomic<std::uint64_t> word_;  // 2 * the last agreement that has a text + 1 if given up since
  // Indexed by the agreement's number modulo 2. Bytes are atomic for a reader that comes too late.
  using Text = std::array<std::atomic<char>, kMostBytes + 1>;
  std::array<Text, 2> texts_;
};

static_assert(Regrouping::kMostBytes <= Standing::kMostBytes);

// The ranks of a group with such memory, as one of them sees them.
struct StandingRanks {
  int me;
  std::vector<Standing*> standings;
  base::FunctionRef<bool(int peer)> has_gone;  // died or left: it brings nothing after that
  base::FunctionRef<void()> wake_all;
  base::FunctionRef<void(base::FunctionRef<bool()> ready)> sleep;  // shortly; may throw
};

// Has the contract of Regrouping::agree(), for the agreement with this number.
Regrouping::Parts agree(const StandingRanks& ranks, std::uint64_t agreement,
                        const std::string& mine, base::Nanoseconds patience);

}  // namespace plait::comm
