#include <atomic>
#include <chrono>
#include <thread>

#include "native.h"

namespace plait::python {
namespace {

// Memory ordering: a thread counts itself and then looks at g_ender; the one that ends Python sets
// g_ender and then looks at the count. One of the two sees the other, which takes the single order
// that seq_cst gives.
std::atomic<int> g_asking{0};
std::atomic<std::thread::id> g_ender{};

constexpr std::chrono::milliseconds kTurn(1);

bool has_ended_elsewhere() {
  const std::thread::id ender = g_ender.load(std::memory_order_seq_cst);
  return ender != std::thread::id() && ender != std::this_thread::get_id();
}

}  // namespace

Unlocked::~Unlocked() {
  g_asking.fetch_add(1, std::memory_order_seq_cst);
  if (has_ended_elsewhere()) {
    g_asking.fetch_sub(1, std::memory_order_seq_cst);
    while (true) std::this_thread::sleep_for(std::chrono::hours(1));
  }
  released_.reset();
  g_asking.fetch_sub(1, std::memory_order_seq_cst);
}

void end_of_python() {
  g_ender.store(std::this_thread::get_id(), std::memory_order_seq_cst);
  while (g_asking.load(std::memory_order_seq_cst) > 0) {
    const nb::gil_scoped_release released;
    std::this_thread::sleep_for(kTurn);
  }
}

}  // namespace plait::python
