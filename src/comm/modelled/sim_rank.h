// A simulated rank: its clock, and what the scheduler knows of it.
#pragma once

#include <memory>
#include <vector>

#include "base/fiber.h"
#include "comm/modelled/simulation.h"
#include "comm/virtual_clock.h"

namespace plait::comm::modelled {

class SimRank final : public VirtualClock {
 public:
  SimRank(Scheduler& scheduler, int rank) : scheduler_(scheduler), rank_(rank) {}

  int rank() const { return rank_; }

  // Groups of a rank are numbered as it makes them, which all ranks do alike.
  int next_group() { return groups_++; }

  Nanoseconds now() const override { return now_; }
  void spend(Nanoseconds time) override;
  void work(const Work& work, base::FunctionRef<void()> poll_step) override;
  bool simulated(const MemoryWork& work) override;
  void drain() override { spend(background_until_ - now_); }
  void wait(const Question& question) override;
  void record(Lane lane, Label label, Interval interval, const SpanArgs& args) override;

  // A chunk on its way from this rank.
  void record_flight(Interval interval, const SpanArgs& args);

  // When what is handed over now goes out.
  Nanoseconds hands_over_at() const { return now_ > background_until_ ? now_ : background_until_; }

  // Something comes to this rank at that time: a chunk, or room for one.
  void notify(Nanoseconds at);

  // Wires from or to this rank are in use.
  void occupy(Interval interval);

  trace::RankRecords take_records();

 private:
  friend class Scheduler;

  // Until then, or until the first poll after something has come: from `first` on, every `grain`.
  struct Polls {
    Nanoseconds first, grain;
  };
  void rest(Nanoseconds until, const Polls& polls);
  Nanoseconds on_grid(Nanoseconds at) const;
  Nanoseconds grain() const;
  Nanoseconds occupied_until_now() const;
  void push_record(trace::Kind kind, Lane lane, Label label, Interval interval,
                   const SpanArgs& args);

  Scheduler& scheduler_;
  int rank_;
  int groups_ = 0;
  Nanoseconds now_ = 0;
  Nanoseconds background_until_ = 0;

  // Belongs to the scheduler, which decides when this rank runs.
  std::unique_ptr<base::Fiber> fiber_;
  Nanoseconds wakes_at_ = 0;

  // When something comes that no poll has seen yet.
  std::vector<Nanoseconds> coming_;  // the earliest last, none of them twice
  bool rests_ = false;
  Polls polls_ = {.first = 0, .grain = 1};
  const Question* question_ = nullptr;  // that it waits for

  // How long its wires have been and will be in use, and until when.
  Nanoseconds occupied_ = 0;
  Nanoseconds occupied_until_ = 0;

  std::vector<trace::Record> records_;
  std::vector<std::string> labels_;
};

}  // namespace plait::comm::modelled
