// Trains two linear layers with a ReLU between them, and prints each loss with its bytes, which are
// the same on any of these numbers of ranks:
//
//   plait run -n 1 -- 07_same_bits
//   plait run -n 2 -- 07_same_bits
//   plait run -n 4 -- 07_same_bits
#include <plait/plait.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

// 4096 hidden features are 8 leaves of a sum, so that 2, 4 and 8 ranks have whole ones.
constexpr std::int64_t kTokens = 24, kInputs = 64, kHidden = 4096, kOutputs = 8;
constexpr float kRate = 0.004F;
constexpr auto kLayout = plait::WeightLayout::out_in;

class Matrix {
 public:
  Matrix(std::int64_t rows, std::int64_t cols) : rows_(rows), cols_(cols), data_(rows * cols) {}

  plait::TensorView view() { return plait::TensorView::of(data_.data(), rows_, cols_); }
  plait::WeightView weight() { return {.view = view(), .layout = kLayout}; }
  float& at(std::int64_t row, std::int64_t col) { return data_[row * cols_ + col]; }
  std::vector<float>& data() { return data_; }

  // Noise that depends on the place in the whole: every world begins with the same.
  void fill(double scale, std::int64_t first_row, std::int64_t first_col) {
    for (std::int64_t i = 0; i < rows_; ++i) {
      for (std::int64_t j = 0; j < cols_; ++j) {
        const auto place = static_cast<double>((first_row + i) * 5009 + first_col + j);
        const double noise = std::sin(place * 12.9898) * 43758.5453;
        at(i, j) = static_cast<float>(scale * (2 * (noise - std::floor(noise)) - 1));
      }
    }
  }

 private:
  std::int64_t rows_, cols_;
  std::vector<float> data_;
};

void descend(Matrix& w, Matrix& gradient) {
  for (std::size_t i = 0; i < w.data().size(); ++i) w.data()[i] -= kRate * gradient.data()[i];
}

}  // namespace

int main() try {
  plait::Communicator comm = plait::Communicator::connect();
  const plait::LinearOptions options = {.sequence_parallel = false};
  const plait::Shard hidden = plait::balanced_shard(kHidden, comm.rank(), comm.world());
  const auto first = static_cast<std::int64_t>(hidden.offset);
  const auto own = static_cast<std::int64_t>(hidden.count);

  // x is trained too: its gradient is a sum over all hidden features, as the outputs are.
  Matrix x(kTokens, kInputs), w1(own, kInputs), w2(kOutputs, own);
  x.fill(1, 0, 0);
  w1.fill(0.3, first, 0);
  w2.fill(0.02, 0, first);
  const plait::WeightKind f32 = {.dtype = plait::Dtype::f32};
  plait::ColumnParallelLinear up(
      {.inputs = kInputs, .outputs = own, .layout = kLayout, .weight = f32}, comm, options);
  plait::RowParallelLinear down(
      {.inputs = own, .outputs = kOutputs, .layout = kLayout, .weight = f32}, comm, options);

  Matrix h(kTokens, own), y(kTokens, kOutputs);
  Matrix grad_x(kTokens, kInputs), grad_h(kTokens, own), grad_y(kTokens, kOutputs);
  Matrix grad_w1(own, kInputs), grad_w2(kOutputs, own);
  plait::LinearState up_state, down_state;
  for (int step = 0; step < 8; ++step) {
    up.forward({.x = x.view(), .weight = w1.weight(), .out = h.view()}, &up_state);
    for (float& value : h.data()) value = std::max(value, 0.0F);
    down.forward({.x = h.view(), .weight = w2.weight(), .out = y.view()}, &down_state);

    float loss = 0;  // the mean of (y - target)²
    for (std::int64_t i = 0; i < kTokens; ++i) {
      for (std::int64_t j = 0; j < kOutputs; ++j) {
        const float error = y.at(i, j) - (i % kOutputs == j ? 1.0F : 0.0F);
        loss += error * error / (kTokens * kOutputs);
        grad_y.at(i, j) = 2 * error / (kTokens * kOutputs);
      }
    }
    if (comm.rank() == 0)
      std::printf("step %d: loss %.6f = %08x\n", step, loss, std::bit_cast<std::uint32_t>(loss));

    down.backward({.x = h.view(),
                   .weight = w2.weight(),
                   .grad_out = grad_y.view(),
                   .grad_x = grad_h.view(),
                   .grad_weight = grad_w2.view()},
                  &down_state);
    for (std::size_t i = 0; i < h.data().size(); ++i)
      grad_h.data()[i] *= h.data()[i] > 0 ? 1.0F : 0.0F;
    up.backward({.x = x.view(),
                 .weight = w1.weight(),
                 .grad_out = grad_h.view(),
                 .grad_x = grad_x.view(),
                 .grad_weight = grad_w1.view()},
                &up_state);
    descend(x, grad_x);
    descend(w1, grad_w1);
    descend(w2, grad_w2);
  }
} catch (const plait::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
