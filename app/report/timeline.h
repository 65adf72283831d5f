// The bars of a run of an operator, rank by rank.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trace/record.h"

namespace plait::report {

// The rows of a rank.
enum class Row : std::uint8_t {
  product,
  communication,  // the rank itself copies and sums
  link,           // chunks being sent to other ranks
  exposed,        // the rank does not multiply: the time that overlap is to remove
};
inline constexpr int kRows = 4;
std::string_view name(Row row);

// Times are nanoseconds since the run's begin.
struct Bar {
  int rank;
  Row row;
  std::string name;
  std::int64_t begin;
  std::int64_t end;
  SpanArgs args = {};  // flops: those of this bar, if the product has several bars
};

struct Run {
  std::string title;
  std::int64_t length = 0;                // nanoseconds
  std::optional<double> efficiency = {};  // only for runs that have one
  std::vector<Bar> bars = {};

  // How long a rank did not multiply, on average.
  double exposed() const;
};

// The records of the ranks from the interval's begin to its end.
Run run_of(std::string title, std::span<const trace::RankRecords> ranks, TimeInterval interval);

struct Timeline {
  std::string title;         // the operator and its sizes
  std::string subtitle;      // the machine, the ranks and the link
  std::int64_t product = 0;  // nanoseconds, each alone
  std::int64_t collective = 0;
  std::vector<Run> runs = {};  // the serial one first

  std::int64_t ideal() const { return product > collective ? product : collective; }
  std::int64_t length() const;  // of the longest run
  int ranks() const;
};

}  // namespace plait::report
