#include "comm/engines/mpi/plugin/deferred_release.h"

#include <exception>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/engines/mpi/plugin/session.h"

namespace plait::comm::mpi {
namespace {

struct DeferredReleases {
  std::mutex mutex;
  std::vector<std::shared_ptr<DeferredRelease>> pending;
};

// Never destroyed: MPI may write to this memory until the process is gone.
DeferredReleases& deferred() {
  static DeferredReleases& one = *std::make_unique<DeferredReleases>().release();
  return one;
}

// False where MPI itself fails: its state is unknown then.
bool is_done(DeferredRelease& one) noexcept try {
  return one.is_done();
} catch (const std::exception&) {
  return false;
}

}  // namespace

void release_later(std::shared_ptr<DeferredRelease> one) noexcept {
  if (mpi_is_usable() && is_done(*one)) return;
  const std::lock_guard lock(deferred().mutex);
  deferred().pending.push_back(std::move(one));
}

// The list is emptied first, because is_done() may itself defer a release.
std::size_t release_finished() noexcept {
  std::vector<std::shared_ptr<DeferredRelease>> taken;
  {
    const std::lock_guard lock(deferred().mutex);
    taken.swap(deferred().pending);
  }
  if (taken.empty()) return 0;
  std::erase_if(taken, [](const auto& one) { return is_done(*one); });
  const std::lock_guard lock(deferred().mutex);
  std::move(taken.begin(), taken.end(), std::back_inserter(deferred().pending));
  return deferred().pending.size();
}

}  // namespace plait::comm::mpi
