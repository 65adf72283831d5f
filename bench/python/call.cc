// Measures a call of an operator from C++: the call of bench/python/measure.py, in a group of one
// rank, where nothing is waited for. Prints the seconds of the thread on the processor, the median
// over batches.
#include <ctime>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "plait/communicator.h"
#include "plait/ops.h"

namespace {

constexpr int kBatches = 500;
constexpr int kCalls = 100;  // in each
constexpr int kSize = 16;    // n and k

double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

int main() {
  plait::Communicator comm =
      plait::Communicator::connect({.place = plait::Place{.rank = 0, .world = 1, .job = "alone"}});
  const std::vector<float> x(kSize, 1.0F);
  const std::vector<float> w(kSize * kSize, 1.0F);
  std::vector<float> y(kSize);
  const plait::WeightView weight = {.view = plait::ConstTensorView::of(w.data(), kSize, kSize),
                                    .layout = plait::WeightLayout::out_in};
  const plait::OpOptions options = {.plan = plait::parse_plan("serial")};
  std::vector<double> times;
  for (int batch = 0; batch < kBatches; ++batch) {
    const double begin = thread_seconds();
    for (int call = 0; call < kCalls; ++call) {
      plait::matmul_all_reduce(plait::ConstTensorView::of(x.data(), 1, kSize), weight,
                               plait::TensorView::of(y.data(), 1, kSize), comm, options);
    }
    times.push_back((thread_seconds() - begin) / kCalls);
  }
  std::nth_element(times.begin(), times.begin() + kBatches / 2, times.end());
  std::printf("%.9f\n", times[kBatches / 2]);
}
