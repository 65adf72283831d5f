#include "comm/session/pending_task.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <functional>
#include <optional>
#include <stdexcept>

#include "trace/pack.h"

namespace plait {
namespace {

// Adds up what is rounded.
class Add final : public Pending::Task {
 public:
  Add() : Task({.operation = Operation::barrier}) {}
  comm::Awaited awaited() const override { return comm::nothing_awaited(tag()); }
  float sum = 0;

 protected:
  bool advance() override {
    volatile float least = 1e-30F;
    sum = 1 + least;
    return true;
  }
};

TEST(PendingTask, ComputesWithDefaultFloats) {
  Add task;
  std::fesetround(FE_UPWARD);
  EXPECT_TRUE(task.step());
  EXPECT_EQ(std::fegetround(), FE_UPWARD) << "the caller's own setting";
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(task.sum, 1);
}

TEST(PendingTask, IsOneFlightFromItsStartToItsEnd) {
  Trace trace(0);
  Add recorded;
  Add quiet;
  for (Add* task : {&recorded, &quiet}) task->record(&trace, "barrier", 24);
  quiet.stop_recording();
  for (Add* task : {&recorded, &quiet}) task->set_fate(Pending::Task::Fate::done);
  const trace::RankRecords all = trace::unpack(trace.pack());
  ASSERT_EQ(all.records.size(), 1U);
  EXPECT_EQ(all.records[0].kind, trace::Kind::flight);
  EXPECT_EQ(all.records[0].args.bytes, 24);
}

// Destroyed by an exception, it tells whether the caller's hook threw it.
TEST(PendingTask, KnowsWhetherAnInterruptionLeavesIt) {
  struct Asks {
    Add task;
    std::optional<bool>& answer;
    ~Asks() { answer = task.is_left_by_interruption(); }
  };
  const auto is_left = [](const std::function<void()>& leave, Pending::Task::Fate fate) {
    std::optional<bool> answer;
    try {
      Asks asks = {.task = {}, .answer = answer};
      asks.task.set_fate(fate);
      leave();
    } catch (const std::runtime_error&) {
    }
    return answer.value();
  };
  using Fate = Pending::Task::Fate;
  const std::function<void()> fail = [] { throw std::runtime_error("a failure"); };
  const std::function<void()> interrupt = comm::Interruption::counted(fail);
  EXPECT_TRUE(is_left(interrupt, Fate::under_way));
  EXPECT_FALSE(is_left(interrupt, Fate::done));
  EXPECT_FALSE(is_left(fail, Fate::under_way));
  EXPECT_FALSE(is_left([] {}, Fate::under_way));
}

}  // namespace
}  // namespace plait
