#include "simulation/sim_rank.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "base/round_up.h"
#include "comm/core/started.h"
#include "simulation/scheduler.h"

namespace plait::comm::modelled {

void SimRank::spend(Nanoseconds time) {
  Nanoseconds end = now_ + time;
  while (now_ < end) {
    const Nanoseconds network_before = network_work_until_now();
    scheduler_.sleep(*this, end);
    end += network_work_until_now() - network_before;
  }
}

void SimRank::idle_until(Nanoseconds time) {
  if (now_ < time) scheduler_.sleep(*this, time);
}

// first 1000, grain 200: 700 → 1000, 1001 → 1200
Nanoseconds SimRank::on_grid(Nanoseconds at) const {
  const Nanoseconds behind = std::max<Nanoseconds>(at - polls_.first, 0);
  return polls_.first + base::round_up(behind, polls_.grain);
}

// If something came during this rank's poll, the poll may have missed it, so the rank rests only
// until its next poll.
void SimRank::rest(Nanoseconds until, const Polls& polls) {
  rests_ = true;
  polls_ = polls;
  if (!coming_.empty() && until > coming_.back()) until = std::min(until, on_grid(coming_.back()));
  scheduler_.sleep(*this, until);
  rests_ = false;
}

// Times are rounded up to the rank's grain: thousands of chunks then need only dozens of entries.
void SimRank::notify(Nanoseconds at) {
  at = base::round_up(at, grain());
  const auto before = std::lower_bound(coming_.begin(), coming_.end(), at, std::greater<>());
  if (before == coming_.end() || *before != at) coming_.insert(before, at);
  if (rests_) scheduler_.wake(*this, on_grid(at));
}

Nanoseconds SimRank::grain() const {
  return std::max<Nanoseconds>(scheduler_.options().poll_cost * (scheduler_.world() - 1), 1);
}

void SimRank::occupy(TimeInterval interval) {
  const Nanoseconds from = std::max(interval.begin, occupied_until_);
  if (interval.end <= from) return;
  occupied_ += interval.end - from;
  occupied_until_ = interval.end;
}

Nanoseconds SimRank::occupied_until_now() const {
  return occupied_ - std::max<Nanoseconds>(occupied_until_ - now_, 0);
}

Nanoseconds SimRank::network_work_until_now() const {
  return scheduler_.wires().worked_until(rank_, now_);
}

void SimRank::work(const Work& work, base::FunctionRef<void()> poll_step) {
  Nanoseconds end = now_ + work.time;
  while (now_ < end) {
    const Nanoseconds busy_before = occupied_until_now();
    const Nanoseconds network_before = network_work_until_now();
    const Nanoseconds poll = std::max<Nanoseconds>(work.poll, 1);
    rest(end, {.first = now_ + poll, .grain = poll});
    const Nanoseconds busy = std::max<Nanoseconds>(occupied_until_now() - busy_before, 0);
    end += static_cast<Nanoseconds>(static_cast<double>(busy) * work.share);
    end += network_work_until_now() - network_before;
    if (now_ >= end) return;
    const Nanoseconds before = now_;
    poll_step();
    while (!coming_.empty() && coming_.back() <= before) coming_.pop_back();
    end += now_ - before;
  }
}

bool SimRank::poll() {
  constexpr Nanoseconds kPoll = 100;
  spend(kPoll);
  return true;
}

bool SimRank::run(const MemoryWork& work) {
  if (work.must_be_done) return false;
  const MemoryCosts& costs = scheduler_.options().memory_costs;
  const bool is_taken = scheduler_.options().no_storage;
  if (costs.in_background && work.to_peer) return is_taken;
  const auto bytes = static_cast<double>(work.read + work.written);
  const Nanoseconds time =
      costs.each + static_cast<Nanoseconds>(std::llround(bytes * 1e9 / costs.bytes_per_second));
  if (time == 0 && !is_taken) return false;
  const Nanoseconds begin = costs.in_background ? hands_over_at() : now_;
  TimeInterval interval = {.begin = begin, .end = begin + time};
  if (costs.in_background) {
    background_until_ = interval.end;
    occupy(interval);
  } else {
    spend(time);
    interval.end = now_;
  }
  record(Lane::comm, work.label, interval, work.args);
  return is_taken;
}

bool SimRank::wait(const Question& question) {
  const Nanoseconds start = now_;
  const Awaited first = scheduler_.options().records ? question.awaited() : nothing_awaited({});
  for (;;) {
    const Nanoseconds before = now_;
    if (question.ready()) break;
    advance_started(this);
    while (!coming_.empty() && coming_.back() <= before) coming_.pop_back();
    scheduler_.raise_if_ended();
    question_ = &question;
    rest(kNever, {.first = now_, .grain = grain()});
    question_ = nullptr;
    scheduler_.raise_if_ended();
  }
  if (now_ > start) {
    record(Lane::wait, "wait", {.begin = start, .end = now_},
           {.peer = first.peer, .chunk = static_cast<std::int32_t>(first.tag.chunk & INT32_MAX)});
  }
  return true;
}

void SimRank::record(Lane lane, Label label, TimeInterval interval, const SpanArgs& args) {
  push_record(trace::Kind::span, lane, label, interval, args);
}

void SimRank::record_flight(TimeInterval interval, const SpanArgs& args) {
  push_record(trace::Kind::flight, Lane::comm, "chunk", interval, args);
}

void SimRank::push_record(trace::Kind kind, Lane lane, Label label, TimeInterval interval,
                          const SpanArgs& args) {
  if (!scheduler_.options().records) return;
  auto known = std::find(labels_.begin(), labels_.end(), label.text());
  if (known == labels_.end()) known = labels_.insert(labels_.end(), label.text());
  records_.push_back({.kind = kind,
                      .lane = lane,
                      .thread = 0,
                      .label = static_cast<std::uint32_t>(known - labels_.begin()),
                      .begin = interval.begin,
                      .end = interval.end,
                      .args = args});
}

trace::RankRecords SimRank::take_records() {
  return {.rank = rank_,
          .dropped = 0,
          .labels = std::exchange(labels_, {}),
          .records = std::exchange(records_, {})};
}

}  // namespace plait::comm::modelled
