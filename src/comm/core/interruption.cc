#include "comm/core/interruption.h"

#include <utility>

namespace plait::comm {

std::uint64_t& Interruption::count() {
  static thread_local std::uint64_t count = 0;
  return count;
}

std::function<void()> Interruption::counted(std::function<void()> hook) {
  if (!hook) return {};
  return [hook = std::move(hook)] {
    try {
      hook();
    } catch (...) {
      ++count();
      throw;
    }
  };
}

}  // namespace plait::comm
