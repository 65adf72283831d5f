#include "report/timeline.h"

#include <algorithm>
#include <array>
#include <vector>

namespace plait::report {
namespace {

// Indexed by Row.
constexpr std::array<std::string_view, kRows> kNames = {"product", "communication", "link",
                                                        "exposed"};

// What the schedules record, by lane and kind. Waits are seen as what is left between products; a
// span around a whole run is none of its parts, and neither is a collective before or after it.
std::optional<Row> row_of(const trace::Record& record, std::string_view label) {
  if (record.kind == trace::Kind::flight && record.lane == Lane::comm) return Row::link;
  if (record.kind != trace::Kind::span) return std::nullopt;
  if (record.lane == Lane::compute) {
    const bool multiplies = label == "product" || label == "pack" || label == "weight gradient";
    return multiplies ? std::optional(Row::product) : std::nullopt;
  }
  if (record.lane != Lane::comm) return std::nullopt;
  const bool of_a_schedule = label == "copy" || label == "sum" || label == "take";
  return of_a_schedule ? std::optional(Row::communication) : std::nullopt;
}

// A product looks after its chunks now and then, by the thread that runs it: while that copies and
// sums, it does not multiply.
std::vector<Interval> multiplying(const trace::Record& product, const trace::RankRecords& rank) {
  std::vector<Interval> parts;
  std::int64_t from = product.begin;
  for (const trace::Record& other : rank.records) {  // a thread's by their ends
    if (other.thread != product.thread || other.begin < from || other.end > product.end) continue;
    if (row_of(other, rank.labels[other.label]) != Row::communication) continue;
    if (other.begin > from) parts.push_back({from, other.begin});
    from = other.end;
  }
  if (product.end > from) parts.push_back({from, product.end});
  return parts;
}

// Where the rank does not multiply.
void add_exposed(Run& run, int rank) {
  std::vector<Interval> products;
  for (const Bar& bar : run.bars) {
    if (bar.rank == rank && bar.row == Row::product) products.push_back({bar.begin, bar.end});
  }
  std::sort(products.begin(), products.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  products.push_back({run.length, run.length});
  std::int64_t free_from = 0;
  for (const Interval& product : products) {
    if (product.begin > free_from) {
      run.bars.push_back({.rank = rank,
                          .row = Row::exposed,
                          .name = "not multiplying",
                          .begin = free_from,
                          .end = product.begin});
    }
    free_from = std::max(free_from, product.end);
  }
}

}  // namespace

std::string_view name(Row row) { return kNames[static_cast<std::size_t>(row)]; }

double Run::exposed() const {
  double sum = 0;
  int ranks = 0;
  for (const Bar& bar : bars) {
    ranks = std::max(ranks, bar.rank + 1);
    if (bar.row == Row::exposed) sum += static_cast<double>(bar.end - bar.begin);
  }
  return ranks == 0 ? 0 : sum / ranks;
}

Run run_of(std::string title, std::span<const trace::RankRecords> ranks, Interval interval) {
  Run run = {.title = std::move(title), .length = interval.end - interval.begin};
  for (const trace::RankRecords& rank : ranks) {
    for (const trace::Record& record : rank.records) {
      const std::string& label = rank.labels[record.label];
      const std::optional<Row> row = row_of(record, label);
      if (!row || record.end <= interval.begin || record.begin >= interval.end) continue;
      const std::vector<Interval> parts = *row == Row::product
                                              ? multiplying(record, rank)
                                              : std::vector<Interval>{{record.begin, record.end}};
      for (const Interval& part : parts) {
        if (part.end <= interval.begin || part.begin >= interval.end) continue;
        run.bars.push_back({.rank = rank.rank,
                            .row = *row,
                            .name = label,
                            .begin = std::max(part.begin, interval.begin) - interval.begin,
                            .end = std::min(part.end, interval.end) - interval.begin,
                            .args = record.args});
      }
    }
    add_exposed(run, rank.rank);
  }
  return run;
}

std::int64_t Timeline::length() const {
  std::int64_t longest = ideal();
  for (const Run& run : runs) longest = std::max(longest, run.length);
  return longest;
}

int Timeline::ranks() const {
  int ranks = 0;
  for (const Run& run : runs) {
    for (const Bar& bar : run.bars) ranks = std::max(ranks, bar.rank + 1);
  }
  return ranks;
}

}  // namespace plait::report
