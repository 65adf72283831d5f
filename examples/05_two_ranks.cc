// A layer of two weights that is cut over the ranks, and the same layer on one rank: the first
// weight by columns, the second by rows, and what the ranks have in parts is summed up on the way.
//
//   plait run -n 2 -- 05_two_ranks
#include <plait/plait.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <vector>

namespace {

constexpr std::int64_t kTokens = 64;
constexpr std::int64_t kWidth = 256;
constexpr std::int64_t kHidden = 960;  // what the first weight makes and the second one takes

// Numbers that look like noise, and are the same on every rank.
float noise(std::int64_t row, std::int64_t column) {
  const auto at = static_cast<double>(row * 131 + column * 7919 % 1009);
  return static_cast<float>(std::sin(at) * 0.05);
}

struct Matrix {
  Matrix(std::int64_t m, std::int64_t n)
      : values(static_cast<std::size_t>(m * n)), rows(m), cols(n) {}

  plait::TensorView view() {
    return {.data = values.data(), .rows = rows, .cols = cols, .row_stride = cols};
  }
  float& at(std::int64_t row, std::int64_t column) {
    return values[static_cast<std::size_t>(row * cols + column)];
  }

  std::vector<float> values;
  std::int64_t rows;
  std::int64_t cols;
};

// y = relu(x·w1)·w2 for hidden units [begin, end): this rank's part, or all of them.
void layer(Matrix& x, Matrix& y, plait::Range hidden, plait::Communicator& comm) {
  const std::int64_t units = hidden.end - hidden.begin;
  Matrix w1(kWidth, units);
  Matrix w2(units, kWidth);
  for (std::int64_t unit = 0; unit < units; ++unit) {
    for (std::int64_t i = 0; i < kWidth; ++i) {
      w1.at(i, unit) = noise(i, hidden.begin + unit);
      w2.at(unit, i) = noise(hidden.begin + unit + 7, i);
    }
  }
  Matrix h(kTokens, units);
  const auto lies = plait::WeightLayout::in_out;
  plait::matmul(x.view(), plait::WeightView{w1.view(), lies}, h.view(), comm);
  for (float& value : h.values) value = std::max(value, 0.0F);
  plait::matmul_all_reduce(h.view(), plait::WeightView{w2.view(), lies}, y.view(), comm);
}

}  // namespace

int main() try {
  plait::Communicator comm = plait::Communicator::connect();
  Matrix x(kTokens, kWidth);
  for (std::int64_t row = 0; row < kTokens; ++row) {
    for (std::int64_t column = 0; column < kWidth; ++column)
      x.at(row, column) = noise(row + 3, column) * 20;
  }
  const plait::Shard mine = plait::balanced_shard(kHidden, comm.rank(), comm.world());
  const auto begin = static_cast<std::int64_t>(mine.offset);
  Matrix together(kTokens, kWidth);
  layer(x, together, {begin, begin + static_cast<std::int64_t>(mine.count)}, comm);

  // Each rank by itself: a communicator of one.
  auto alone = comm.split(comm.rank(), 0);
  Matrix whole(kTokens, kWidth);
  if (alone) layer(x, whole, {0, kHidden}, *alone);

  double worst = 0;
  for (std::size_t i = 0; i < whole.values.size(); ++i)
    worst = std::max(worst, std::abs(double{together.values[i]} - double{whole.values[i]}));
  if (comm.rank() == 0)
    std::printf("%d ranks: the layer differs from that of one rank by %.1e at most\n", comm.world(),
                worst);
  return worst < 1e-4 ? 0 : 1;
} catch (const plait::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
