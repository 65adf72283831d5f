// The records of a timeline, for the writer and the report.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "plait/trace.h"

namespace plait::trace {

inline constexpr int kLanes = 3;
constexpr std::string_view name(Lane lane) {
  constexpr std::array<std::string_view, kLanes> kNames = {"compute", "comm", "wait"};
  const auto number = static_cast<std::size_t>(lane);
  return number < kNames.size() ? kNames[number] : "unknown";
}

enum class Kind : std::uint8_t {
  span,
  flight,
  mark,   // begin == end
  count,  // begin == end; the value is in args.bytes
};
inline constexpr int kKinds = 4;

// The largest time or clock offset, 36 years. Sums of two can't overflow.
inline constexpr base::Nanoseconds kFarthest = base::Nanoseconds{1} << 60;

struct Record {
  Kind kind;
  Lane lane;
  std::uint32_t thread;  // numbered in the order in which threads first recorded
  std::uint32_t label;   // index into RankRecords::labels
  base::Nanoseconds begin;
  base::Nanoseconds end;
  SpanArgs args = {};
};

struct RankRecords {
  int rank = 0;
  std::int64_t dropped = 0;
  base::Nanoseconds uncertainty = 0;  // of its clock, beside the timeline's
  std::vector<std::string> labels = {};
  std::vector<Record> records = {};  // by thread; within a thread in the order in which they ended
};

}  // namespace plait::trace
