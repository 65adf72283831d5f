#include "comm/session/task_queue.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "comm/session/transports.h"
#include "conformance/ranks.h"

namespace plait::comm {
namespace {

// Takes some steps, and says when it begins and ends.
class Steps final : public Pending::Task {
 public:
  Steps(int steps, std::vector<std::uint32_t>& log)
      : Task({.operation = Operation::barrier}), left_(steps), log_(log) {}
  void begin() override { log_.push_back(tag().call); }
  Awaited awaited() const override { return {.peer = 0, .tag = tag()}; }

 protected:
  bool advance() override {
    if (left_ == 0) return true;
    --left_;
    if (left_ == 0) log_.push_back(10 * tag().call);
    return left_ == 0;
  }

 private:
  int left_;
  std::vector<std::uint32_t>& log_;
};

// Fails in its second step.
class Failing final : public Pending::Task {
 public:
  Failing() : Task({.operation = Operation::barrier}) {}
  Awaited awaited() const override { return {.peer = 0, .tag = tag()}; }

 protected:
  bool advance() override {
    if (++steps_ > 1) throw std::runtime_error("in step " + std::to_string(steps_));
    return false;
  }

 private:
  int steps_ = 0;
};

// A group of one rank, by itself.
class TaskQueueTest : public testing::Test {
 protected:
  explicit TaskQueueTest(base::Nanoseconds timeout = 60 * base::kSecond)
      : site_{.place = {.rank = 0, .world = 1}, .policy = {.timeout = timeout}},
        transport_(select_transport("threads", site_).create(site_)),
        mailbox_(transport_->group(), kDesc, transport_->make_slots(kDesc)),
        lanes_(transport_->group(), {.ways = 1, .per_lane = 1}),
        membership_(*transport_),
        tasks_(membership_, calls_) {
    tasks_.use(lanes_, mailbox_);
  }

  std::shared_ptr<Steps> task(int steps) { return std::make_shared<Steps>(steps, log_); }

  static constexpr MailboxDesc kDesc = {.slots = 1, .slot_bytes = 64};
  static constexpr int kNever = 1 << 30;

  Site site_;
  std::vector<std::uint32_t> log_;  // n: task n begins; 10n: it is done
  std::unique_ptr<Transport> transport_;
  Mailbox::State mailbox_;
  Lanes lanes_;
  Membership membership_;
  CallCounter calls_;
  TaskQueue tasks_;
};

TEST_F(TaskQueueTest, DoesTasksOneAfterAnother) {
  const auto first = task(3);
  const auto second = task(2);
  tasks_.start(first);
  tasks_.start(second);
  tasks_.wait(*second);
  EXPECT_EQ(log_, (std::vector<std::uint32_t>{1, 10, 2, 20}));
  EXPECT_EQ(first->fate(), Pending::Task::Fate::done);
  EXPECT_EQ(calls_.completed(), 2U);
}

TEST_F(TaskQueueTest, RunsATaskAfterThoseUnderWay) {
  tasks_.start(task(100));
  tasks_.run(*task(1));
  EXPECT_EQ(log_, (std::vector<std::uint32_t>{1, 10, 2, 20}));
}

TEST_F(TaskQueueTest, NumbersOtherCallsToo) {
  tasks_.start(task(100));
  EXPECT_EQ(tasks_.begin_call({.operation = Operation::split}).call, 2U);
  EXPECT_EQ(log_, (std::vector<std::uint32_t>{1, 10})) << "what was started before is done";
  tasks_.run(*task(1));
  EXPECT_EQ(log_.back(), 30U);
}

TEST_F(TaskQueueTest, APollMakesAStepAndWaitsForNothing) {
  const auto one = task(3);
  tasks_.start(one);
  EXPECT_FALSE(tasks_.poll(*one));
  EXPECT_TRUE(tasks_.poll(*one));
  EXPECT_TRUE(tasks_.poll(*one)) << "from then on";
}

TEST_F(TaskQueueTest, IsAdvancedByAWaitElsewhere) {
  const auto first = task(2);
  const auto second = task(3);
  tasks_.start(first);
  tasks_.start(second);
  EXPECT_FALSE(tasks_.empty());
  for (int turn = 0; turn < 5 && tasks_.can_advance(); ++turn) tasks_.advance_beside();
  EXPECT_TRUE(tasks_.empty());
  EXPECT_FALSE(tasks_.can_advance());
  EXPECT_EQ(log_, (std::vector<std::uint32_t>{1, 10, 2, 20}));
  EXPECT_EQ(second->fate(), Pending::Task::Fate::done);
}

TEST_F(TaskQueueTest, KeepsWhatAStepElsewhereFailsWith) {
  const auto failing = std::make_shared<Failing>();
  tasks_.start(failing);
  EXPECT_TRUE(tasks_.can_advance());
  EXPECT_NO_THROW(tasks_.advance_beside());
  EXPECT_FALSE(tasks_.can_advance());
  EXPECT_NO_THROW(tasks_.advance_beside()) << "nothing is stepped before it has been thrown";
  try {
    tasks_.wait(*failing);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "in step 2");
  }
}

class ImpatientTaskQueueTest : public TaskQueueTest {
 protected:
  ImpatientTaskQueueTest() : TaskQueueTest(50 * base::kMillisecond) {}
};

TEST_F(ImpatientTaskQueueTest, ARankThatPollsGivesUpAtItsDeadline) {
  const auto one = task(kNever);
  tasks_.start(one);
  expect_error(Code::timeout, "barrier", [&] {
    while (!tasks_.poll(*one)) base::sleep_until(base::now() + base::kMillisecond);
  });
}

TEST_F(TaskQueueTest, RefusesTasksOfAGroupThatHasFailed) {
  const auto one = task(kNever);
  tasks_.start(one);
  membership_.group().fail({.code = Code::peer_lost, .culprit = 0, .sentence = "lost"});
  expect_error(Code::peer_lost, [&] { tasks_.poll(*one); });
  expect_error(Code::peer_lost, [&] { tasks_.wait(*one); });
  expect_error(Code::peer_lost, [&] { tasks_.run(*task(1)); });
  expect_error(Code::peer_lost, [&] { tasks_.start(task(1)); });
}

TEST_F(TaskQueueTest, AbandonsWhatIsUnderWay) {
  const auto done = task(1);
  const auto left = task(kNever);
  tasks_.start(done);
  tasks_.start(left);
  tasks_.abandon();
  EXPECT_EQ(done->fate(), Pending::Task::Fate::done);
  EXPECT_EQ(left->fate(), Pending::Task::Fate::abandoned);
}

}  // namespace
}  // namespace plait::comm
