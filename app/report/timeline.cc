#include "report/timeline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

namespace plait::report {
namespace {

// Indexed by Row.
constexpr std::array<std::string_view, kRows> kNames = {"product", "communication", "link",
                                                        "exposed"};

// Classifies what schedules record, by lane and kind. Waits are not drawn: they are the gaps
// between products. A span around a whole run is not a part of it, and neither is a collective
// before or after it.
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

// The copies and sums of a rank itself, sorted by thread and then by end.
class OwnWork {
 public:
  explicit OwnWork(const trace::RankRecords& rank) {
    for (const trace::Record& record : rank.records) {
      if (row_of(record, rank.labels[record.label]) == Row::communication)
        spans_.push_back({record.thread, {record.begin, record.end}});
    }
    std::stable_sort(spans_.begin(), spans_.end(), [](const Span& a, const Span& b) {
      return std::pair(a.thread, a.time.end) < std::pair(b.thread, b.time.end);
    });
  }

  // Returns the times in which the product multiplies. A product polls its chunks now and then on
  // its own thread; while it copies and sums, it does not multiply.
  std::vector<TimeInterval> multiplying(const trace::Record& product) const {
    std::vector<TimeInterval> parts;
    std::int64_t from = product.begin;
    auto other = std::partition_point(spans_.begin(), spans_.end(), [&](const Span& span) {
      return std::pair(span.thread, span.time.end) < std::pair(product.thread, product.begin);
    });
    for (; other != spans_.end() && other->thread == product.thread; ++other) {
      const TimeInterval& time = other->time;
      if (time.end > product.end) break;
      if (time.begin < from) continue;
      if (time.begin > from) parts.push_back({from, time.begin});
      from = time.end;
    }
    if (product.end > from) parts.push_back({from, product.end});
    return parts;
  }

 private:
  struct Span {
    std::uint32_t thread;
    TimeInterval time;
  };

  std::vector<Span> spans_;
};

std::int64_t length(const TimeInterval& time) { return time.end - time.begin; }

// The intersection; of length 0 if they don't meet.
TimeInterval common(const TimeInterval& a, const TimeInterval& b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

// The share of a product's work that falls into `seen`. It is assumed to be proportional to time,
// since the rate within a product is not recorded.
SpanArgs part_of(SpanArgs args, std::int64_t seen, std::int64_t whole) {
  if (args.flops > 0 && whole > 0) {
    args.flops = std::llround(static_cast<double>(args.flops) * static_cast<double>(seen) /
                              static_cast<double>(whole));
  }
  return args;
}

// Adds the bars of one record, clipped to the run, in the run's time.
void add_bars(Run& run, const Bar& bar, const std::vector<TimeInterval>& parts,
              const TimeInterval& interval) {
  std::int64_t whole = 0;
  for (const TimeInterval& part : parts) whole += length(part);
  for (const TimeInterval& part : parts) {
    if (part.end <= interval.begin || part.begin >= interval.end) continue;
    const TimeInterval seen = common(part, interval);
    run.bars.push_back({.rank = bar.rank,
                        .row = bar.row,
                        .name = bar.name,
                        .begin = seen.begin - interval.begin,
                        .end = seen.end - interval.begin,
                        .args = part_of(bar.args, length(seen), whole)});
  }
}

// Adds bars for the times in which the rank does not multiply.
void add_exposed(Run& run, int rank) {
  std::vector<TimeInterval> products;
  for (const Bar& bar : run.bars) {
    if (bar.rank == rank && bar.row == Row::product) products.push_back({bar.begin, bar.end});
  }
  std::sort(products.begin(), products.end(),
            [](const TimeInterval& a, const TimeInterval& b) { return a.begin < b.begin; });
  products.push_back({run.length, run.length});
  std::int64_t free_from = 0;
  for (const TimeInterval& product : products) {
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

Run run_of(std::string title, std::span<const trace::RankRecords> ranks, TimeInterval interval) {
  Run run = {.title = std::move(title), .length = interval.end - interval.begin};
  for (const trace::RankRecords& rank : ranks) {
    const OwnWork own_work(rank);
    for (const trace::Record& record : rank.records) {
      const std::string& label = rank.labels[record.label];
      const std::optional<Row> row = row_of(record, label);
      if (!row || record.end <= interval.begin || record.begin >= interval.end) continue;
      const Bar bar = {.rank = rank.rank,
                       .row = *row,
                       .name = label,
                       .begin = record.begin,
                       .end = record.end,
                       .args = record.args};
      add_bars(run, bar,
               *row == Row::product ? own_work.multiplying(record)
                                    : std::vector<TimeInterval>{{record.begin, record.end}},
               interval);
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
