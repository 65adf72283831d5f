// Trains two linear layers with a ReLU between them to imitate a function. Outside the layers,
// tokens are sharded over the ranks; inside them, the hidden features are.
//
//   plait run -n 2 -- 05_linear_layers                      plans from settings; equal losses
//   PLAIT_PLAN=fused plait run -n 2 -- 05_linear_layers     with every plan, to the last bit
//   05_linear_layers                                        one rank; equal except for rounding
//   COC_PARALLEL_NUM=4 plait run -n 2 -- 05_linear_layers timeline.json    what overlapped
#include <plait/plait.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

constexpr std::int64_t kTokens = 90, kInputs = 24, kHidden = 160, kOutputs = 8;
constexpr float kRate = 0.5F;

class Matrix {
 public:
  Matrix(std::int64_t rows, std::int64_t cols) : rows_(rows), cols_(cols), data_(rows * cols) {}

  plait::TensorView view() { return plait::TensorView::of(data_.data(), rows_, cols_); }
  float& at(std::int64_t row, std::int64_t col) { return data_[row * cols_ + col]; }
  std::vector<float>& data() { return data_; }

  // Noise that depends on the position in the whole matrix, so every world starts with the same
  // values.
  void fill(double scale, std::int64_t first_row, std::int64_t first_col) {
    for (std::int64_t i = 0; i < rows_; ++i) {
      for (std::int64_t j = 0; j < cols_; ++j) {
        const auto place = static_cast<double>((first_row + i) * 1009 + first_col + j);
        const double noise = std::sin(place * 12.9898) * 43758.5453;
        at(i, j) = static_cast<float>(scale * (2 * (noise - std::floor(noise)) - 1));
      }
    }
  }

 private:
  std::int64_t rows_, cols_;
  std::vector<float> data_;
};

constexpr auto kLayout = plait::WeightLayout::out_in;

plait::WeightView weight_of(Matrix& w) { return {.view = w.view(), .layout = kLayout}; }

void descend(Matrix& w, Matrix& gradient) {
  for (std::size_t i = 0; i < w.data().size(); ++i) w.data()[i] -= kRate * gradient.data()[i];
}

}  // namespace

int main(int argc, char** argv) try {
  plait::Trace trace(plait::place_from_environment().rank);
  plait::Communicator comm = plait::Communicator::connect({.trace = &trace});
  const plait::Settings settings = plait::load_settings();
  const plait::SettingsPlans plans(settings);
  const plait::LinearOptions options = plait::linear_options(settings, plans);
  const plait::Shard tokens = plait::balanced_shard(kTokens, comm.rank(), comm.world());
  const plait::Shard hidden = plait::balanced_shard(kHidden, comm.rank(), comm.world());
  const auto own_tokens = static_cast<std::int64_t>(tokens.count);
  const auto own_hidden = static_cast<std::int64_t>(hidden.count);

  Matrix w1(own_hidden, kInputs), w2(kOutputs, own_hidden), x(own_tokens, kInputs);
  w1.fill(0.4, static_cast<std::int64_t>(hidden.offset), 0);
  w2.fill(0.05, 0, static_cast<std::int64_t>(hidden.offset));
  x.fill(1, static_cast<std::int64_t>(tokens.offset), 0);
  const plait::WeightKind f32 = {.dtype = plait::Dtype::f32};
  plait::ColumnParallelLinear up(
      {.inputs = kInputs, .outputs = own_hidden, .layout = kLayout, .weight = f32}, comm, options);
  plait::RowParallelLinear down(
      {.inputs = own_hidden, .outputs = kOutputs, .layout = kLayout, .weight = f32}, comm, options);

  // Inside the layers a rank has its features of all tokens; outside, all features of its tokens.
  Matrix h(kTokens, own_hidden), grad_h(kTokens, own_hidden), grad_w1(own_hidden, kInputs);
  Matrix y(own_tokens, kOutputs), grad_y(own_tokens, kOutputs), grad_w2(kOutputs, own_hidden);
  plait::LinearState up_state, down_state;
  for (int step = 0; step < 12; ++step) {
    up.forward({.x = x.view(), .weight = weight_of(w1), .out = h.view()}, &up_state);
    for (float& value : h.data()) value = std::max(value, 0.0F);
    down.forward({.x = h.view(), .weight = weight_of(w2), .out = y.view()}, &down_state);

    float loss = 0;  // the mean of (y - target)²
    for (std::int64_t i = 0; i < own_tokens; ++i) {
      for (std::int64_t j = 0; j < kOutputs; ++j) {
        const float error = y.at(i, j) - x.at(i, j) * x.at(i, j + 1);
        loss += error * error / (kTokens * kOutputs);
        grad_y.at(i, j) = 2 * error / (kTokens * kOutputs);
      }
    }

    down.backward({.x = h.view(),
                   .weight = weight_of(w2),
                   .grad_out = grad_y.view(),
                   .grad_x = grad_h.view(),
                   .grad_weight = grad_w2.view()},
                  &down_state);
    for (std::size_t i = 0; i < h.data().size(); ++i)
      grad_h.data()[i] *= h.data()[i] > 0 ? 1.0F : 0.0F;
    // grad_x is not needed here, so no weight is passed.
    up.backward({.x = x.view(), .grad_out = grad_h.view(), .grad_weight = grad_w1.view()},
                &up_state);
    descend(w1, grad_w1);
    descend(w2, grad_w2);

    plait::all_reduce({&loss, 1}, comm);
    if (comm.rank() == 0) std::printf("step %d: loss %.9g\n", step, loss);
  }
  if (argc > 1) plait::write_timeline(argv[1], trace, comm);
} catch (const plait::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
