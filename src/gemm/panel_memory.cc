#include "gemm/panel_memory.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace plait::gemm {
namespace {

// Buffers that are not lent just now.
class Pool {
 public:
  // The smallest that is large enough. Where none is, the largest goes: or else there would be one
  // of every size in the end.
  Buffer take(std::size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      const auto fit = std::find_if(free_.begin(), free_.end(),
                                    [&](const Buffer& one) { return one.bytes() >= bytes; });
      if (fit != free_.end()) return taken(fit);
      if (!free_.empty()) free_.pop_back();
    }
    return Buffer(bytes, {.huge_pages = true});
  }

  void give(Buffer buffer) {
    const std::lock_guard lock(mutex_);
    const auto place = std::find_if(free_.begin(), free_.end(), [&](const Buffer& one) {
      return one.bytes() > buffer.bytes();
    });
    free_.insert(place, std::move(buffer));
  }

 private:
  Buffer taken(std::vector<Buffer>::iterator which) {
    Buffer buffer = std::move(*which);
    free_.erase(which);
    return buffer;
  }

  std::mutex mutex_;
  std::vector<Buffer> free_;  // the smallest first
};

// Never destroyed: a product of a static object may give back what it has at the program's end.
Pool& pool() {
  static auto* const pool = new Pool;
  return *pool;
}

}  // namespace

PanelMemory::PanelMemory(std::size_t bytes) : buffer_(pool().take(bytes)) {}

PanelMemory& PanelMemory::operator=(PanelMemory&& other) noexcept {
  if (this != &other) {
    give_back();
    buffer_ = std::move(other.buffer_);
  }
  return *this;
}

PanelMemory::~PanelMemory() { give_back(); }

void PanelMemory::give_back() noexcept try {
  if (buffer_.bytes() > 0) pool().give(std::move(buffer_));
} catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): then it is freed
}

}  // namespace plait::gemm
