// A simulated rank: its clock, and what the scheduler knows of it.
#pragma once

#include <memory>
#include <vector>

#include "base/fiber.h"
#include "comm/core/executor.h"
#include "comm/core/wait.h"
#include "simulation/simulation.h"

namespace plait::comm::modelled {

class SimRank final : public Executor {
 public:
  SimRank(Scheduler& scheduler, int rank) : scheduler_(scheduler), rank_(rank) {}

  int rank() const { return rank_; }

  // Groups of a rank are numbered as it makes them, which all ranks do alike.
  int next_group() { return groups_++; }

  // This rank's time passes as fast as its work is said to take, and stands still between.
  Nanoseconds now() const { return now_; }

  // Work of this rank, during which it polls nothing. It is interrupted while the processor works
  // for the network.
  void spend(Nanoseconds time);

  // The rank does nothing until then.
  void idle_until(Nanoseconds time);

  // Work during which the rank polls, about every `poll`, if something may have come. Polls take
  // their time too. While chunks of this rank travel, or work is done in the background, work loses
  // `share` of its speed; and it stands still while the processor works for the network.
  struct Work {
    Nanoseconds time;
    Nanoseconds poll;
    double share = 0;
  };
  void work(const Work& work, base::FunctionRef<void()> poll_step);

  // Takes the time that the simulation's costs say, and where slots have no storage the work too.
  // Otherwise the work is done. Where work is done in the background, one piece
  // after another, what the rank posts and releases from now on goes out when all of it is done.
  bool run(const MemoryWork& work) override;

  // Returns when all work in the background is done.
  void drain() { idle_until(background_until_); }

  bool has_clock() const override { return true; }
  bool wait(const Question& question) override;

  // Takes about as long as a real poll: otherwise no other rank would ever get its turn.
  bool poll() override;

  // For a timeline.
  void record(Lane lane, Label label, TimeInterval interval, const SpanArgs& args);

  // A chunk on its way from this rank.
  void record_flight(TimeInterval interval, const SpanArgs& args);

  // When what is handed over now goes out.
  Nanoseconds hands_over_at() const { return now_ > background_until_ ? now_ : background_until_; }

  // Something comes to this rank at that time: a chunk, or room for one.
  void notify(Nanoseconds at);

  // Wires from or to this rank are in use.
  void occupy(TimeInterval interval);

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
  Nanoseconds network_work_until_now() const;
  void push_record(trace::Kind kind, Lane lane, Label label, TimeInterval interval,
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
