#include "report/calls.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace plait::report {
namespace {

constexpr std::string_view kCall = "call ";
constexpr std::string_view kReturn = "return";

struct Call {
  std::string problem;
  TimeInterval time;
};

// Disjoint, sorted by their begin.
using Times = std::vector<TimeInterval>;

Times merged(Times times) {
  std::sort(times.begin(), times.end(),
            [](const TimeInterval& a, const TimeInterval& b) { return a.begin < b.begin; });
  Times all;
  for (const TimeInterval& one : times) {
    if (!all.empty() && one.begin <= all.back().end) {
      all.back().end = std::max(all.back().end, one.end);
    } else if (one.end > one.begin) {
      all.push_back(one);
    }
  }
  return all;
}

Times common(const Times& a, const Times& b) {
  Times both;
  for (auto one = a.begin(), other = b.begin(); one != a.end() && other != b.end();) {
    const TimeInterval meeting = {std::max(one->begin, other->begin),
                                  std::min(one->end, other->end)};
    if (meeting.end > meeting.begin) both.push_back(meeting);
    if (one->end < other->end) {
      ++one;
    } else {
      ++other;
    }
  }
  return both;
}

// Removes the other times from the first ones.
Times without(const Times& times, const Times& others) {
  Times left;
  auto other = others.begin();
  for (TimeInterval one : times) {
    while (other != others.end() && other->end <= one.begin) ++other;
    for (auto taken = other; taken != others.end() && taken->begin < one.end; ++taken) {
      if (taken->begin > one.begin) left.push_back({one.begin, taken->begin});
      one.begin = std::max(one.begin, std::min(taken->end, one.end));
    }
    if (one.end > one.begin) left.push_back(one);
  }
  return left;
}

// True if an interval lies within one of the others, which are disjoint and sorted.
bool lies_within(const TimeInterval& one, std::span<const TimeInterval> others) {
  const auto other = std::partition_point(
      others.begin(), others.end(), [&](const TimeInterval& time) { return time.end < one.end; });
  return other != others.end() && other->begin <= one.begin;
}

Times those_within(const Times& times, const Times& others) {
  Times within;
  for (const TimeInterval& one : times) {
    if (lies_within(one, others)) within.push_back(one);
  }
  return within;
}

// How long these times are within an interval.
std::int64_t length_within(const Times& times, const TimeInterval& interval) {
  std::int64_t sum = 0;
  auto one = std::partition_point(times.begin(), times.end(), [&](const TimeInterval& time) {
    return time.end <= interval.begin;
  });
  for (; one != times.end() && one->begin < interval.end; ++one)
    sum += std::min(one->end, interval.end) - std::max(one->begin, interval.begin);
  return sum;
}

// A pair of marks on a thread is a call. One may contain others, made from a hook or beside its
// experts. A call that raised an error has no end and is left out.
std::vector<Call> finished_calls(const trace::RankRecords& rank) {
  std::vector<const trace::Record*> marks;
  for (const trace::Record& record : rank.records) {
    if (record.kind == trace::Kind::mark) marks.push_back(&record);
  }
  std::stable_sort(marks.begin(), marks.end(), [](const auto* a, const auto* b) {
    return std::pair(a->thread, a->begin) < std::pair(b->thread, b->begin);
  });
  std::vector<Call> calls;
  std::vector<const trace::Record*> open;
  for (const trace::Record* mark : marks) {
    const std::string_view label = rank.labels[mark->label];
    if (label.starts_with(kCall)) {
      open.push_back(mark);
    } else if (label == kReturn && !open.empty() && open.back()->thread == mark->thread) {
      const trace::Record* call = open.back();
      const std::string_view problem = rank.labels[call->label];
      calls.push_back({.problem = std::string(problem.substr(kCall.size())),
                       .time = {.begin = call->begin, .end = mark->begin}});
      open.pop_back();
    }
  }
  return calls;
}

// The name of a record that is not part of an operator's call.
std::optional<std::string> name_of_other(const trace::Record& record, const std::string& label) {
  const bool is_span = record.kind == trace::Kind::span;
  if (is_span && record.lane == Lane::compute && label == "weight gradient") return label;
  const bool of_a_schedule = label == "copy" || label == "sum" || label == "take";
  if (is_span && record.lane == Lane::comm && !of_a_schedule) return label;
  const bool is_flight = record.kind == trace::Kind::flight && record.lane == Lane::comm;
  if (is_flight && label != "chunk") return label;
  return std::nullopt;
}

// Operators' calls, and what is recorded beside them.
std::vector<Call> all_calls(const trace::RankRecords& rank) {
  std::vector<Call> calls = finished_calls(rank);
  for (const trace::Record& record : rank.records) {
    if (auto other = name_of_other(record, rank.labels[record.label]))
      calls.push_back({.problem = *std::move(other), .time = {record.begin, record.end}});
  }
  return calls;
}

TimeInterval whole(std::span<const trace::RankRecords> ranks) {
  TimeInterval all = {.begin = 0, .end = 0};
  bool is_first = true;
  for (const trace::RankRecords& rank : ranks) {
    for (const trace::Record& record : rank.records) {
      all.begin = is_first ? record.begin : std::min(all.begin, record.begin);
      all.end = is_first ? record.end : std::max(all.end, record.end);
      is_first = false;
    }
  }
  return all;
}

// The activity of a rank at any time of its records, by the rows of a run.
class Activity {
 public:
  explicit Activity(const trace::RankRecords& rank) {
    const TimeInterval interval = whole({&rank, 1});
    const Run run = run_of({}, {&rank, 1}, interval);
    Times communication;
    for (const Bar& bar : run.bars) {
      const TimeInterval time = {bar.begin + interval.begin, bar.end + interval.begin};
      if (bar.row == Row::product) multiplying_.push_back(time);
      if (bar.row == Row::communication) communicating_.push_back(time);
      if (bar.row == Row::communication || bar.row == Row::link) communication.push_back(time);
    }
    for (const trace::Record& record : rank.records) {
      if (record.kind == trace::Kind::span && record.lane == Lane::wait)
        waiting_.push_back({record.begin, record.end});
    }
    communication.insert(communication.end(), waiting_.begin(), waiting_.end());
    multiplying_ = merged(std::move(multiplying_));
    // Collectives contain waits, and waits are interrupted by sums and copies. Each moment belongs
    // to the innermost of them.
    waiting_ = merged(std::move(waiting_));
    waiting_ = without(waiting_, merged(those_within(communicating_, waiting_)));
    communicating_ = without(merged(std::move(communicating_)), waiting_);
    communication_ = merged(std::move(communication));
    hidden_ = common(communication_, multiplying_);
  }

  void add(const TimeInterval& call, Calls& calls) const {
    ++calls.count;
    calls.time += call.end - call.begin;
    calls.multiplying += length_within(multiplying_, call);
    calls.communicating += length_within(communicating_, call);
    calls.waiting += length_within(waiting_, call);
    calls.communication += length_within(communication_, call);
    calls.hidden += length_within(hidden_, call);
  }

 private:
  Times multiplying_;
  Times communicating_;
  Times waiting_;
  Times communication_;
  Times hidden_;
};

}  // namespace

std::vector<Calls> calls_of(const trace::RankRecords& rank) {
  const TimeInterval always = whole({&rank, 1});
  return calls_of(rank, {&always, 1});
}

std::vector<Calls> calls_of(const trace::RankRecords& rank, std::span<const TimeInterval> within) {
  const Activity activity(rank);
  std::map<std::string, Calls> problems;
  for (const Call& call : all_calls(rank)) {
    if (lies_within(call.time, within)) activity.add(call.time, problems[call.problem]);
  }
  std::vector<Calls> all;
  for (auto& [problem, calls] : problems) {
    calls.problem = problem;
    all.push_back(std::move(calls));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Calls& a, const Calls& b) { return a.time > b.time; });
  return all;
}

Run run_of_calls(std::string title, std::span<const trace::RankRecords> ranks) {
  const TimeInterval interval = whole(ranks);
  Run run = run_of(std::move(title), ranks, interval);
  std::vector<Bar> bars;
  std::map<int, Times> exposed;
  for (Bar& bar : run.bars) {
    if (bar.row == Row::exposed) {
      exposed[bar.rank].push_back({bar.begin, bar.end});
    } else {
      bars.push_back(std::move(bar));
    }
  }
  for (const trace::RankRecords& rank : ranks) {
    Times calls;
    for (const Call& call : finished_calls(rank))
      calls.push_back({call.time.begin - interval.begin, call.time.end - interval.begin});
    for (const TimeInterval& time : common(exposed[rank.rank], merged(std::move(calls)))) {
      bars.push_back({.rank = rank.rank,
                      .row = Row::exposed,
                      .name = "not multiplying",
                      .begin = time.begin,
                      .end = time.end});
    }
  }
  run.bars = std::move(bars);
  return run;
}

}  // namespace plait::report
