#include "gpu/lt/lt_best.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"

namespace plait::gpu {
namespace {

void require_event(cudaError_t status, const char* action) {
  if (status == cudaSuccess) return;
  base::fail(Code::system, "best_time: CUDA could not ", action, ": ", cudaGetErrorString(status));
}

class LtEvent {
 public:
  LtEvent() { require_event(cudaEventCreate(&event_), "create an event"); }
  LtEvent(LtEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  LtEvent& operator=(LtEvent&&) = delete;
  ~LtEvent() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }

  void record(cudaStream_t stream) {
    require_event(cudaEventRecord(event_, stream), "record an event");
  }

  double microseconds_since(const LtEvent& begin) const {
    float milliseconds = 0;
    require_event(cudaEventElapsedTime(&milliseconds, begin.event_, event_), "read an event");
    return 1000.0 * static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// Runs candidates, each with the next set of operands.
class LtTimer {
 public:
  LtTimer(const LtProduct& product, std::span<const LtOperands> sets, cudaStream_t stream)
      : product_(product), sets_(sets), stream_(stream) {}

  void run(int candidate) {
    product_.run(sets_[next_], candidate, stream_);
    next_ = (next_ + 1) % sets_.size();
  }

  // The candidates that cuBLASLt starts: the heuristic may name some that it refuses later.
  std::vector<int> that_run(int candidates) {
    std::vector<int> able;
    for (int candidate = 0; candidate < candidates; ++candidate) {
      try {
        run(candidate);
        able.push_back(candidate);
      } catch (const Error&) {
        continue;
      }
    }
    return able;
  }

  // The time of each run of each candidate.
  std::vector<std::vector<double>> times(const std::vector<int>& candidates, int runs) {
    std::vector<std::vector<std::pair<LtEvent, LtEvent>>> events(candidates.size());
    for (int i = 0; i < runs; ++i) {
      for (std::size_t which = 0; which < candidates.size(); ++which) {
        auto& [begin, end] = events[which].emplace_back();
        begin.record(stream_);
        run(candidates[which]);
        end.record(stream_);
      }
    }
    require_event(cudaStreamSynchronize(stream_), "finish products");
    std::vector<std::vector<double>> times(candidates.size());
    for (std::size_t which = 0; which < candidates.size(); ++which)
      for (const auto& [begin, end] : events[which])
        times[which].push_back(end.microseconds_since(begin));
    return times;
  }

 private:
  const LtProduct& product_;
  std::span<const LtOperands> sets_;
  cudaStream_t stream_;
  std::size_t next_ = 0;
};

double lt_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

LtBest best_time(LtProduct& product, std::span<const LtOperands> sets, const LtEffort& effort,
                 cudaStream_t stream) {
  PLAIT_CHECK(!sets.empty() && effort.runs > 0, "best_time: ", sets.size(), " sets of operands, ",
              effort.runs, " runs; both must be at least 1");
  LtTimer timer(product, sets, stream);
  const std::vector<int> candidates = timer.that_run(product.candidates(effort.candidates));
  for (int i = 0; i < effort.warmups; ++i)
    for (const int candidate : candidates) timer.run(candidate);
  const auto times = timer.times(candidates, effort.runs);
  LtBest best{.microseconds = std::numeric_limits<double>::infinity()};
  for (std::size_t which = 0; which < candidates.size(); ++which) {
    const double median = lt_median(times[which]);
    if (median < best.microseconds) best = {.candidate = candidates[which], .microseconds = median};
  }
  return best;
}

}  // namespace plait::gpu
