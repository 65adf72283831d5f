#include "comm/core/started.h"

#include <algorithm>
#include <atomic>
#include <vector>

namespace plait::comm {
namespace {

struct List {
  std::uint64_t thread;  // a number, as the next thread may have this one's addresses
  std::vector<std::shared_ptr<Started>> tasks;
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

void erase(const Started* one) noexcept {
  std::erase_if(t_list->tasks, [&](const auto& listed) { return listed.get() == one; });
}

}  // namespace

bool has_started() noexcept {
  return t_list != nullptr && std::any_of(t_list->tasks.begin(), t_list->tasks.end(),
                                          [](const auto& one) { return !one->is_in_use_here(); });
}

// A step may wait, in which the list may be advanced and change: then some of it has its turn next
// time.
bool advance_started(const Executor* clock) {
  if (t_list == nullptr) return false;
  bool moved = false;
  for (std::size_t i = 0; i < t_list->tasks.size();) {
    const std::shared_ptr<Started> one = t_list->tasks[i];
    const auto outcome = one->advance(clock);
    if (outcome != Started::Outcome::waits) moved = true;
    if (outcome == Started::Outcome::none_left) {
      erase(one.get());
    } else {
      ++i;
    }
  }
  if (moved) ++t_moves;
  return moved;
}

std::uint64_t moves_beside() noexcept { return t_moves; }

bool Started::is_owned_here() const noexcept {
  return t_list != nullptr && owner_ == t_list->thread;
}

// Without memory for the list they are advanced in calls of their communicator alone.
void Started::set_owner(bool has_any) noexcept try {
  List* const list = list_of_this_thread();
  if (list == nullptr) return;
  const bool is_listed = owner_ == list->thread;
  if (is_listed && has_any) return;
  owner_ = 0;
  if (is_listed) erase(this);
  if (!has_any) return;
  list->tasks.push_back(shared_from_this());
  owner_ = list->thread;
} catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): see above
}

void Started::forget_here() noexcept {
  if (is_owned_here()) erase(this);
}

}  // namespace plait::comm
