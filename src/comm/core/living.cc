#include "comm/core/living.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <ranges>

#include "plait/communicator.h"

namespace plait {
namespace comm {
namespace {

std::atomic<Living*> g_living{nullptr};

}  // namespace

// Memory ordering: a Living is complete before it is shown (release); a thread that finds it
// (acquire) may use it. Of two threads that make one at once, the second takes the first's.
Living& Living::here() {
  const pid_t pid = ::getpid();
  Living* found = g_living.load(std::memory_order_acquire);  // pairs with the exchange below
  while (found == nullptr || found->pid_ != pid) {
    std::unique_ptr<Living> made(new Living(pid, found));
    if (g_living.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel,
                                         std::memory_order_acquire)) {
      found = made.release();
    }
  }
  return *found;
}

void Living::add(LivingCommunicator& one, const std::string& transport) {
  const std::lock_guard lock(mutex_);
  all_.push_back(&one);
  // Handlers run in the opposite order of their registration. A library that a transport has
  // started, as MPI, ends by a handler of its own, registered before this one: it is still there
  // when groups are left. Without memory for a handler the process has died for the others.
  if (transports_.insert(transport).second) static_cast<void>(std::atexit(plait::leave_all));
}

void Living::remove(const LivingCommunicator& one) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = std::find(all_.begin(), all_.end(), &one);
  if (found != all_.end()) all_.erase(found);
}

// A wait is shown for people to read, which is not worth waiting for; its end must be shown.
void Living::show_wait(const Group& group, const Awaited* awaited) noexcept {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (awaited == nullptr) {
    lock.lock();
  } else if (!lock.try_lock()) {
    return;
  }
  for (LivingCommunicator* one : all_) one->show_wait_elsewhere(group, awaited);
}

void Living::leave_all() noexcept {
  const std::lock_guard lock(mutex_);
  for (LivingCommunicator* one : std::views::reverse(all_)) one->leave();
}

}  // namespace comm

void leave_all() noexcept { comm::Living::here().leave_all(); }

}  // namespace plait
