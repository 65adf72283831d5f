#include "comm/modelled/seat.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "base/round_up.h"
#include "comm/modelled/stage.h"

namespace plait::comm::modelled {

void Seat::spend(Nanoseconds time) {
  if (time <= 0) return;
  stage_.sleep(*this, now_ + time);
}

// first 1000, grain 200: 700 → 1000, 1001 → 1200
Nanoseconds Seat::on_grid(Nanoseconds at) const {
  const Nanoseconds behind = std::max<Nanoseconds>(at - looks_.first, 0);
  return looks_.first + base::round_up(behind, looks_.grain);
}

// What came while this rank looked, and was perhaps overlooked, ends the rest at once.
void Seat::rest(Nanoseconds until, const Looks& looks) {
  rests_ = true;
  looks_ = looks;
  if (!coming_.empty() && until > coming_.back()) until = std::min(until, on_grid(coming_.back()));
  stage_.sleep(*this, until);
  rests_ = false;
}

// Times are rounded up to the rank's grain: thousands of chunks then need only dozens of entries.
void Seat::notify(Nanoseconds at) {
  at = base::round_up(at, grain());
  const auto before = std::lower_bound(coming_.begin(), coming_.end(), at, std::greater<>());
  if (before == coming_.end() || *before != at) coming_.insert(before, at);
  if (rests_) stage_.wake(*this, on_grid(at));
}

Nanoseconds Seat::grain() const {
  return std::max<Nanoseconds>(stage_.options().look * (stage_.world() - 1), 1);
}

void Seat::occupy(Interval interval) {
  const Nanoseconds from = std::max(interval.begin, occupied_until_);
  if (interval.end <= from) return;
  occupied_ += interval.end - from;
  occupied_until_ = interval.end;
}

Nanoseconds Seat::occupied_until_now() const {
  return occupied_ - std::max<Nanoseconds>(occupied_until_ - now_, 0);
}

void Seat::work(const Work& work, base::FunctionRef<void()> look) {
  Nanoseconds end = now_ + work.time;
  while (now_ < end) {
    const Nanoseconds busy_before = occupied_until_now();
    const Nanoseconds poll = std::max<Nanoseconds>(work.poll, 1);
    rest(end, {.first = now_ + poll, .grain = poll});
    const Nanoseconds busy = std::max<Nanoseconds>(occupied_until_now() - busy_before, 0);
    end += static_cast<Nanoseconds>(static_cast<double>(busy) * work.share);
    if (now_ >= end) return;
    const Nanoseconds before = now_;
    look();
    while (!coming_.empty() && coming_.back() <= before) coming_.pop_back();
    end += now_ - before;
  }
}

bool Seat::plays(const Chore& chore) {
  if (!stage_.options().hollow) return false;
  const Chores& chores = stage_.options().chores;
  if (chores.beside && chore.to_peer) return true;
  const auto bytes = static_cast<double>(chore.read + chore.written);
  const Nanoseconds time =
      chores.each + static_cast<Nanoseconds>(std::llround(bytes * 1e9 / chores.bytes_per_second));
  const Nanoseconds begin = chores.beside ? hands_over_at() : now_;
  const Interval interval = {.begin = begin, .end = begin + time};
  if (chores.beside) {
    beside_until_ = interval.end;
    occupy(interval);
  } else {
    spend(time);
  }
  record(Lane::comm, chore.label, interval, chore.args);
  return true;
}

void Seat::wait(const Question& question) {
  const Nanoseconds start = now_;
  const Awaited first = stage_.options().records ? question.awaited() : nothing_awaited({});
  for (;;) {
    const Nanoseconds before = now_;
    if (question.ready()) break;
    while (!coming_.empty() && coming_.back() <= before) coming_.pop_back();
    stage_.raise_if_ended();
    question_ = &question;
    rest(kNever, {.first = now_, .grain = grain()});
    question_ = nullptr;
    stage_.raise_if_ended();
  }
  if (now_ > start) {
    record(Lane::wait, "wait", {.begin = start, .end = now_},
           {.peer = first.peer, .chunk = static_cast<std::int32_t>(first.tag.chunk & INT32_MAX)});
  }
}

void Seat::record(Lane lane, Label label, Interval interval, const SpanArgs& args) {
  push_record(trace::Kind::span, lane, label, interval, args);
}

void Seat::record_flight(Interval interval, const SpanArgs& args) {
  push_record(trace::Kind::flight, Lane::comm, "chunk", interval, args);
}

void Seat::push_record(trace::Kind kind, Lane lane, Label label, Interval interval,
                       const SpanArgs& args) {
  if (!stage_.options().records) return;
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

trace::RankRecords Seat::take_records() {
  return {.rank = rank_,
          .dropped = 0,
          .labels = std::exchange(labels_, {}),
          .records = std::exchange(records_, {})};
}

}  // namespace plait::comm::modelled
