// Refuses a run of a product that is running already: its working memory is for one at a time.
#pragma once

#include <atomic>
#include <string_view>

#include "base/check.h"

namespace plait::gemm {

// Memory ordering: relaxed. It only tells of a mistake, which need not be found every time.
class Running {
 public:
  // `name`: of the product, such as "matmul: this Gemm"
  Running(std::atomic<bool>& flag, std::string_view name) : flag_(flag) {
    PLAIT_CHECK(!flag.exchange(true, std::memory_order_relaxed), name,
                " is running: it is for one thread at a time, and a hook multiplies by another "
                "one");
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() { flag_.store(false, std::memory_order_relaxed); }

 private:
  std::atomic<bool>& flag_;
};

}  // namespace plait::gemm
