#include "comm/started.h"

#include <algorithm>
#include <atomic>
#include <vector>

namespace plait::comm {
namespace {

struct List {
  std::uint64_t thread;  // a number, as the next thread may have this one's addresses
  std::vector<std::shared_ptr<StartedTasks>> tasks;
};

// Null before the thread's first, and when the thread ends: communicators in static variables are
// destroyed later.
constinit thread_local List* t_list = nullptr;
constinit thread_local bool t_has_ended = false;
constinit thread_local std::uint64_t t_moves = 0;

// Memory ordering: relaxed; the numbers differ, and nothing else matters.
constinit std::atomic<std::uint64_t> g_last_thread{0};

struct OwnedList : List {
  OwnedList() : List{g_last_thread.fetch_add(1, std::memory_order_relaxed) + 1, {}} {
    t_list = this;
  }
  ~OwnedList() {
    t_list = nullptr;
    t_has_ended = true;
  }
  OwnedList(const OwnedList&) = delete;
  OwnedList& operator=(const OwnedList&) = delete;
};

List* list_of_this_thread() {
  if (t_list != nullptr || t_has_ended) return t_list;
  thread_local OwnedList list;
  return &list;
}

void erase(const StartedTasks* one) noexcept {
  std::erase_if(t_list->tasks, [&](const auto& listed) { return listed.get() == one; });
}

}  // namespace

bool has_started() noexcept {
  return t_list != nullptr &&
         std::any_of(t_list->tasks.begin(), t_list->tasks.end(),
                     [](const auto& one) { return !one->guard().is_in_use_here(); });
}

// A step may wait, in which the list may be advanced and change: then some of it has its turn next
// time.
bool advance_started(const Executor* clock) {
  if (t_list == nullptr) return false;
  bool moved = false;
  for (std::size_t i = 0; i < t_list->tasks.size();) {
    const std::shared_ptr<StartedTasks> one = t_list->tasks[i];
    const auto outcome = one->advance(clock);
    if (outcome != StartedTasks::Outcome::waits) moved = true;
    if (outcome == StartedTasks::Outcome::none_left) {
      erase(one.get());
    } else {
      ++i;
    }
  }
  if (moved) ++t_moves;
  return moved;
}

std::uint64_t moves_beside() noexcept { return t_moves; }

StartedTasks::Outcome StartedTasks::advance(const Executor* clock) {
  if (!guard_.begin_step()) return Outcome::waits;
  struct Step {
    ThreadGuard& guard;
    ~Step() { guard.end(); }
  };
  const Step step{guard_};
  return advance_alone(clock);
}

StartedTasks::Outcome StartedTasks::advance_alone(const Executor* clock) {
  if (tasks_ == nullptr || owner_ != t_list->thread) return Outcome::none_left;
  if (tasks_->clock() != clock) return Outcome::waits;
  const bool moved = tasks_->advance_beside();
  if (tasks_->can_advance()) return moved ? Outcome::moved : Outcome::waits;
  owner_ = 0;
  return Outcome::none_left;
}

// Without memory for the list they are advanced in calls of their communicator alone.
void StartedTasks::set_owner() noexcept try {
  List* const list = list_of_this_thread();
  if (list == nullptr) return;
  const bool is_listed = owner_ == list->thread;
  if (is_listed && has_any()) return;
  owner_ = 0;
  if (is_listed) erase(this);
  if (!has_any()) return;
  list->tasks.push_back(shared_from_this());
  owner_ = list->thread;
} catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): see above
}

void StartedTasks::close() noexcept {
  guard_.close();
  tasks_ = nullptr;
  if (t_list != nullptr && owner_ == t_list->thread) erase(this);
  guard_.end();
}

}  // namespace plait::comm
