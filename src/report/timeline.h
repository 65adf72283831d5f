// What happened in a run of an operator, rank by rank, as a reader wants to see it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trace/record.h"

namespace plait::report {

// What a rank does, and what is done for it; each has a row of its own.
enum class Row : std::uint8_t {
  product,
  communication,  // copying and summing, by the rank itself
  link,           // chunks on their way to others
  exposed,        // when the rank does not multiply: what overlap is to remove
};
inline constexpr int kRows = 4;
std::string_view name(Row row);

// In nanoseconds from the run's begin on.
struct Bar {
  int rank;
  Row row;
  std::string name;
  std::int64_t begin;
  std::int64_t end;
  SpanArgs args = {};  // flops: of this bar, where a product has several
};

struct Run {
  std::string title;
  std::int64_t length = 0;                // nanoseconds
  std::optional<double> efficiency = {};  // where it means something
  std::vector<Bar> bars = {};

  // How long a rank did not multiply, on average.
  double exposed() const;
};

// What the ranks have recorded from `begin` to `end`.
Run run_of(std::string title, std::span<const trace::RankRecords> ranks, Interval interval);

struct Timeline {
  std::string title;         // the operator and its sizes
  std::string subtitle;      // the machine, the ranks and the link
  std::int64_t product = 0;  // nanoseconds, each alone
  std::int64_t collective = 0;
  std::vector<Run> runs;  // the serial one first

  std::int64_t ideal() const { return product > collective ? product : collective; }
  std::int64_t length() const;  // of the longest run
  int ranks() const;
};

}  // namespace plait::report
