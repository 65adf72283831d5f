#include "tensor/shared_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/close_on_fork.h"
#include "base/round_up.h"
#include "tensor/huge_pages.h"

namespace plait::tensor {
namespace {

// Less than this is read in a few small pages.
constexpr std::size_t kLeast = std::size_t{64} << 10;

// Mapped at once. A page of it takes memory once it is touched.
constexpr std::size_t kRegion = std::size_t{64} << 20;

#ifdef __SANITIZE_ADDRESS__
constexpr bool kShares = false;
#else
constexpr bool kShares = true;
#endif

std::size_t in_lines(std::size_t bytes) { return base::round_up(bytes, std::size_t{64}); }

// Mapped memory, and what is free in it.
class Region {
 public:
  explicit Region(std::byte* data) : data_(data), free_{{0, kRegion}} {}

  bool has(const std::byte* data) const { return data >= data_ && data < data_ + kRegion; }
  bool is_free() const { return free_.size() == 1 && free_.begin()->second == kRegion; }
  void unmap() const { ::munmap(data_, kRegion); }

  // The first place that is large enough.
  std::byte* take(std::size_t bytes) {
    const auto place = std::find_if(free_.begin(), free_.end(),
                                    [&](const auto& one) { return one.second >= bytes; });
    if (place == free_.end()) return nullptr;
    const auto [begin, length] = *place;
    if (length > bytes) free_.emplace(begin + bytes, length - bytes);
    free_.erase(place);
    return data_ + begin;
  }

  void give(const std::byte* data, std::size_t bytes) {
    const auto begin = static_cast<std::size_t>(data - data_);
    auto place = free_.emplace(begin, bytes).first;
    if (const auto next = std::next(place); next != free_.end() && begin + bytes == next->first) {
      place->second += next->second;
      free_.erase(next);
    }
    if (place == free_.begin()) return;
    const auto before = std::prev(place);
    if (before->first + before->second != begin) return;
    before->second += place->second;
    free_.erase(place);
  }

 private:
  std::byte* data_;
  std::map<std::size_t, std::size_t> free_;  // from a place on, so many bytes
};

struct Regions {
  std::mutex mutex;
  std::vector<Region> all;
};

// Never destroyed: a static object may give back what it has at the program's end.
Regions& regions() {
  static auto* const regions = new Regions;
  return *regions;
}

// While it lives, no other thread changes regions, and none forks: a child whose parent's other
// thread held the mutex would wait for ever.
class Lock {
 public:
  explicit Lock(Regions& regions) : lock_(regions.mutex) {}

 private:
  base::CloseOnFork no_fork_;  // before the mutex, which a thread that forks doesn't take
  std::lock_guard<std::mutex> lock_;
};

}  // namespace

std::byte* take_shared_pages(std::size_t bytes) {
  if (!kShares || bytes < kLeast || bytes >= kTwoMiB || huge_page() != kTwoMiB) return nullptr;
  const std::size_t needed = in_lines(bytes);
  Regions& known = regions();
  const Lock lock(known);
  for (Region& one : known.all) {
    if (std::byte* const data = one.take(needed)) return data;
  }
  known.all.reserve(known.all.size() + 1);
  std::byte* const mapped = map_huge_pages(kRegion);
  if (mapped == nullptr) return nullptr;
  return known.all.emplace_back(mapped).take(needed);
}

void give_shared_pages(std::byte* data, std::size_t bytes) noexcept try {
  Regions& known = regions();
  const Lock lock(known);
  const auto region = std::find_if(known.all.begin(), known.all.end(),
                                   [&](const Region& one) { return one.has(data); });
  region->give(data, in_lines(bytes));
  if (!region->is_free()) return;
  region->unmap();
  known.all.erase(region);
} catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): then the memory is lost
}

}  // namespace plait::tensor
