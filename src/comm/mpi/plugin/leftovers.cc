#include "comm/mpi/plugin/leftovers.h"

#include <exception>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/mpi/plugin/session.h"

namespace plait::comm::mpi {
namespace {

struct Shelf {
  std::mutex mutex;
  std::vector<std::unique_ptr<Leftover>> leftovers;
};

// Never destroyed: MPI may write to what is left until the process is gone.
Shelf& shelf() {
  static Shelf& one = *std::make_unique<Shelf>().release();
  return one;
}

// Where MPI itself fails nothing can be known: it stays.
bool is_settled(Leftover& leftover) noexcept try {
  return leftover.settled();
} catch (const std::exception&) {
  return false;
}

}  // namespace

void leave_behind(std::unique_ptr<Leftover> leftover) noexcept {
  if (!mpi_is_usable()) {
    [[maybe_unused]] const Leftover* lost = leftover.release();
    return;
  }
  if (is_settled(*leftover)) return;
  const std::lock_guard lock(shelf().mutex);
  shelf().leftovers.push_back(std::move(leftover));
}

// Taken off the shelf meanwhile: what settles may leave something behind itself.
std::size_t settle_leftovers() noexcept {
  std::vector<std::unique_ptr<Leftover>> taken;
  {
    const std::lock_guard lock(shelf().mutex);
    taken.swap(shelf().leftovers);
  }
  if (taken.empty()) return 0;
  std::erase_if(taken, [](const auto& leftover) { return is_settled(*leftover); });
  const std::lock_guard lock(shelf().mutex);
  std::move(taken.begin(), taken.end(), std::back_inserter(shelf().leftovers));
  return shelf().leftovers.size();
}

}  // namespace plait::comm::mpi
