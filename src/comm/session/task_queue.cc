#include "comm/session/task_queue.h"

#include <algorithm>
#include <utility>

#include "comm/core/interruption.h"
#include "comm/core/started.h"
#include "comm/core/wait.h"

namespace plait::comm {

TaskQueue::TaskQueue(const Membership& membership, CallCounter& calls)
    : membership_(membership),
      calls_(calls),
      patience_(group().policy(), kAtOnce),
      polling_(group()) {}

void TaskQueue::use(Lanes& lanes, Mailbox::State& mailbox) {
  lanes_ = &lanes;
  mailbox_ = &mailbox;
  lanes.use(mailbox);
}

Tag TaskQueue::begin_call(Tag tag) {
  membership_.check_usable();
  drain();
  tag.call = calls_.begin();
  group().announce(tag);
  return tag;
}

void TaskQueue::begin(Task& task) {
  group().announce(task.tag());
  patience_.renew(base::now());
  lanes_->begin(task.tag());
  task.begin();
}

void TaskQueue::run(Task& task) {
  membership_.check_usable();
  drain();
  task.set_call(calls_.begin());
  begin(task);
  wait_until(
      group(), [&] { return task.step(); }, [&] { return mailbox_->take_due(); },
      [&] { return task.awaited(); }, &lanes_->moves());
  group().finish_sending();
  calls_.complete_collective();
}

void TaskQueue::start(std::shared_ptr<Task> task) {
  membership_.check_usable();
  task->set_call(calls_.begin());
  tasks_.push_back(std::move(task));
  if (tasks_.size() == 1) begin(*tasks_.front());
  advance(*tasks_.back());
}

bool TaskQueue::has(const Task& task) const {
  return std::any_of(tasks_.begin(), tasks_.end(),
                     [&](const auto& queued) { return queued.get() == &task; });
}

bool TaskQueue::advance(const Task& task) {
  membership_.check_usable();
  if (thrown_ != nullptr) std::rethrow_exception(std::exchange(thrown_, nullptr));
  advance_all();
  const bool done = !has(task);
  if (!done) mailbox_->help();
  return done;
}

void TaskQueue::advance_all() {
  while (!tasks_.empty() && tasks_.front()->step() && is_sent()) end_front();
}

bool TaskQueue::is_sent() {
  if (!unsent_) {
    unsent_ = group().unsent();
    patience_.renew(base::now());
  }
  return unsent_->empty() || group().is_sent(*unsent_, patience_);
}

void TaskQueue::end_front() {
  unsent_.reset();
  tasks_.front()->set_fate(Task::Fate::done);
  tasks_.pop_front();
  calls_.complete_collective();
  if (!tasks_.empty()) begin(*tasks_.front());
}

bool TaskQueue::can_advance() const {
  return !tasks_.empty() && thrown_ == nullptr && membership_.is_usable();
}

bool TaskQueue::advance_beside() {
  if (!can_advance()) return false;
  const Interruption interruption;
  const std::size_t queued = tasks_.size();
  const std::uint64_t moves = lanes_->moves();
  try {
    advance_all();
    if (!tasks_.empty()) mailbox_->help();
  } catch (...) {
    if (interruption.has_come()) throw;
    thrown_ = std::current_exception();
  }
  const bool moved = tasks_.size() != queued || lanes_->moves() != moves;
  const Nanoseconds now = base::now();
  if (!moved && now - patience_.polled_at() < PollTimes().between) return false;
  patience_.note_poll(now, false);
  show();
  return moved;
}

bool TaskQueue::poll(const Task& task) {
  const bool done = advance(task);
  if (done) {
    polling_.end();
  } else {
    if (!unsent_) poll_peers();
    advance_started(clock());
  }
  return done;
}

// Polls the peers, as the wait loop does for a rank that sleeps.
void TaskQueue::poll_peers() {
  const Nanoseconds now = base::now();
  patience_.note_poll(now, true);
  if (polled_moves_ != lanes_->moves()) patience_.renew(now);
  polled_moves_ = lanes_->moves();
  if (!patience_.must_poll_peers(now)) return;
  Task& front = *tasks_.front();
  // A peer whose chunk is known to be on its way is not late.
  if (!front.step() && mailbox_->take_due() != kNever) patience_.renew(now);
  const Awaited awaited = front.awaited();
  polling_.publish(awaited);
  // Nor has such a peer left anything undone.
  const auto goes_on = [&] {
    return front.step() || front.awaited().peer != awaited.peer || mailbox_->take_due() != kNever;
  };
  group().examine(&awaited, goes_on);
  if (patience_.is_over(now) && !front.step()) group().give_up(awaited, goes_on);
}

void TaskQueue::wait(const Task& task) {
  while (has(task)) {
    wait_until(
        group(), [&] { return advance(task) || unsent_; }, [&] { return mailbox_->take_due(); },
        [&] { return tasks_.front()->awaited(); }, &lanes_->moves());
    if (!unsent_) continue;
    group().finish_sending(*unsent_);
    end_front();
  }
}

void TaskQueue::drain() {
  while (!tasks_.empty()) wait(*tasks_.back());
}

void TaskQueue::show() {
  if (tasks_.empty()) return group().rest();
  group().show_started(patience_.polled_at());
}

void TaskQueue::stop_recording() {
  for (const auto& task : tasks_) task->stop_recording();
}

void TaskQueue::abandon() {
  for (const auto& task : tasks_) task->set_fate(Task::Fate::abandoned);
  polling_.end();
}

}  // namespace plait::comm
