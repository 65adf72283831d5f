// Gradients: those of one rank, to the last bit, for every number of ranks; and those of one rank
// are what a double loop gives.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "experts/activation.h"
#include "experts/batch.h"
#include "plait/collectives.h"

namespace plait {
namespace {

// The gradients of one rank's call.
struct Gradients {
  Gradients(const ExpertsDesc& desc, std::int64_t rows, std::size_t experts, float before)
      : outputs(experts::outputs_of(desc.activation, desc.inner)),
        x(static_cast<std::size_t>(rows * desc.hidden), -3.0F),
        weights(static_cast<std::size_t>(rows * desc.top), -3.0F),
        up(experts, std::vector<float>(static_cast<std::size_t>(outputs * desc.hidden), before)),
        down(experts,
             std::vector<float>(static_cast<std::size_t>(desc.hidden * desc.inner), before)),
        up_bias(experts, std::vector<float>(static_cast<std::size_t>(outputs), before)),
        down_bias(experts, std::vector<float>(static_cast<std::size_t>(desc.hidden), before)) {
    x_view = TensorView::of(x.data(), rows, desc.hidden);
    for (std::size_t i = 0; i < experts; ++i) {
      up_views.push_back(TensorView::of(up[i].data(), outputs, desc.hidden));
      down_views.push_back(TensorView::of(down[i].data(), desc.hidden, desc.inner));
      up_bias_views.push_back(TensorView::of(up_bias[i].data(), 1, outputs));
      down_bias_views.push_back(TensorView::of(down_bias[i].data(), 1, desc.hidden));
    }
  }

  ExpertsBackward call(const ExpertsForward& forward, const ConstTensorView& grad_out,
                       bool has_biases) {
    using Views = std::span<const TensorView>;
    return {.forward = forward,
            .grad_out = grad_out,
            .grad_x = x_view,
            .grad_weights = weights,
            .grad_up = up_views,
            .grad_down = down_views,
            .grad_up_biases = has_biases ? Views(up_bias_views) : Views(),
            .grad_down_biases = has_biases ? Views(down_bias_views) : Views()};
  }

  std::int64_t outputs;
  std::vector<float> x, weights;
  std::vector<std::vector<float>> up, down, up_bias, down_bias;
  TensorView x_view;
  std::vector<TensorView> up_views, down_views, up_bias_views, down_bias_views;
};

bool are_same(const std::vector<float>& a, const float* b) {
  return a.empty() || std::memcmp(a.data(), b, a.size() * sizeof(float)) == 0;
}

Values grads_of(const Batch& batch, const ExpertsDesc& desc) {
  std::minstd_rand random(9);
  return {desc.dtype, batch.rows(), desc.hidden, 1.0F, random};
}

Gradients by_one_rank(const Experts& experts, const Batch& batch, float before) {
  const bool has_biases = !experts.up_bias_views.empty();
  Gradients all(experts.desc, batch.rows(), experts.up_weights.size(), before);
  const Values grads = grads_of(batch, experts.desc);
  run_in_threads(1, [&](Communicator& comm) {
    ExpertsDesc desc = experts.desc;
    desc.ranks.clear();
    ExpertParallelMLP layer(desc, comm, {.schedule = Schedule::serial, .threads = 1});
    RankCall mine(experts, batch, 0, batch.rows(), layer.experts_of(0));
    ExpertsBackward call = all.call(mine.call(), grads.view(), has_biases);
    call.accumulate = before != 0;
    layer.backward(call);
  });
  return all;
}

void expect_gradients_everywhere(const Experts& experts, float before = 0,
                                 const RunRanks& run = run_as_threads) {
  const ExpertsDesc& desc = experts.desc;
  const bool has_biases = !experts.up_bias_views.empty();
  for (const int world : {2, 3}) {
    const Batch batch(
        desc, world == 2 ? std::vector<std::int64_t>{70, 9} : std::vector<std::int64_t>{20, 0, 50});
    const Gradients wanted = by_one_rank(experts, batch, before);
    const Values grads = grads_of(batch, desc);
    const Body body = [&](Communicator& comm) {
      for (const Schedule schedule : {Schedule::serial, Schedule::fused}) {
        const int threads = comm.rank() == 0 ? 3 : 1;
        ExpertParallelMLP layer(desc, comm, {.schedule = schedule, .threads = threads});
        const std::vector<std::int64_t> own = layer.experts_of(comm.rank());
        const std::int64_t first = batch.first_row(comm.rank());
        const std::int64_t rows = batch.rows_of_ranks[static_cast<std::size_t>(comm.rank())];
        RankCall mine(experts, batch, first, rows, own);
        Gradients got(desc, rows, own.size(), before);
        ExpertsBackward call =
            got.call(mine.call(), grads.view().row_range(first, first + rows), has_biases);
        call.accumulate = before != 0;
        call.forward.gradients = true;
        layer.forward(call.forward);
        layer.backward(call);
        EXPECT_TRUE(are_same(got.x, wanted.x.data() + first * desc.hidden));
        EXPECT_TRUE(are_same(got.weights, wanted.weights.data() + first * desc.top));
        for (std::size_t i = 0; i < own.size(); ++i) {
          const auto expert = static_cast<std::size_t>(own[i]);
          EXPECT_TRUE(are_same(got.up[i], wanted.up[expert].data())) << expert;
          EXPECT_TRUE(are_same(got.down[i], wanted.down[expert].data())) << expert;
          EXPECT_TRUE(are_same(got.up_bias[i], wanted.up_bias[expert].data())) << expert;
          EXPECT_TRUE(are_same(got.down_bias[i], wanted.down_bias[expert].data())) << expert;
        }
      }
      barrier(comm);
    };
    run(world, body, {});
  }
}

ExpertsDesc layer_desc() { return {.hidden = 64, .inner = 48, .experts = 5, .top = 2}; }

TEST(ExpertsBackward, AnyWorldGivesTheBitsOfOneRank) {
  expect_gradients_everywhere({layer_desc(), Dtype::bf16, "", true});
  expect_gradients_everywhere({layer_desc(), Dtype::bf16, "", false}, 0.5F);
}

TEST(ExpertsBackward, PartsGiveTheBitsOfOneRankWithAllOfThem) {
  ExpertsDesc desc = layer_desc();
  desc.inner = 16;
  desc.parts = 3;
  expect_gradients_everywhere({desc, Dtype::bf16, "", true});
  desc.ranks = {1, 0, 1, 0, 0, 1, 1, 1, 1, 0, 1, 0, 1, 0, 0};
  expect_gradients_everywhere({desc, Dtype::bf16, "", false}, 0.5F);
}

// Parts that are nodes: gradients of weights are those of a whole expert, and those of x too where
// a part's outputs lie side by side.
TEST(ExpertsBackward, PartsGiveTheBitsOfWholeExperts) {
  constexpr std::int64_t kWhole = 1024;
  for (const auto activation : {ExpertActivation::swiglu_interleaved, ExpertActivation::silu}) {
    ExpertsDesc desc = layer_desc();
    desc.hidden = 32;
    desc.activation = activation;
    desc.inner = kWhole;
    const Experts whole(desc, Dtype::bf16, "", false);
    desc.inner = kWhole / 2;
    desc.parts = 2;
    const Experts cut(desc, Dtype::bf16, "", false);
    const Batch batch(desc, {9});
    const Gradients wanted = by_one_rank(whole, batch, 0);
    const Gradients got = by_one_rank(cut, batch, 0);
    EXPECT_TRUE(are_same(got.x, wanted.x.data()));
    for (std::size_t part = 0; part < got.up.size(); ++part) {
      const std::size_t expert = part / 2;
      const std::size_t offset = part % 2 * got.up[part].size();
      EXPECT_TRUE(are_same(got.up[part], wanted.up[expert].data() + offset)) << part;
      for (std::int64_t row = 0; row < desc.hidden; ++row) {
        const auto first = static_cast<std::size_t>(row * desc.inner);
        const std::size_t in_whole = 2 * first + part % 2 * static_cast<std::size_t>(desc.inner);
        EXPECT_EQ(std::memcmp(&got.down[part][first], &wanted.down[expert][in_whole],
                              static_cast<std::size_t>(desc.inner) * sizeof(float)),
                  0)
            << part;
      }
    }
  }
}

#ifndef __SANITIZE_THREAD__
TEST(ExpertsBackward, HasTheSameBitsOverTcp) {
  expect_gradients_everywhere({layer_desc(), Dtype::bf16, "", true}, 0, run_over_tcp);
}
#endif

TEST(ExpertsBackward, RefusesGradientsOverWhatItReads) {
  const Experts experts(layer_desc(), Dtype::bf16, "", false);
  const Batch batch(experts.desc, {12});
  Values grads = grads_of(batch, experts.desc);
  run_in_threads(1, [&](Communicator& comm) {
    ExpertParallelMLP layer(experts.desc, comm);
    RankCall mine(experts, batch, 0, 12, layer.experts_of(0));
    ExpertsBackward call = {
        .forward = mine.call(), .grad_out = grads.view(), .grad_x = grads.view()};
    EXPECT_EQ(
        std::string(expect_error(Code::invalid_argument, [&] { layer.backward(call); }).what()),
        "expert_parallel_mlp: grad_x overlaps grad_out");
  });
}

TEST(ExpertsBackward, AnyActivationGivesTheBitsOfOneRank) {
  for (const auto activation : {ExpertActivation::swiglu_interleaved, ExpertActivation::silu}) {
    ExpertsDesc desc = layer_desc();
    desc.activation = activation;
    desc.alpha = 1.702F;
    desc.limit = 7.0F;
    desc.added = 1.0F;
    desc.weights_at = ExpertWeightsAt::activation;
    desc.dtype = Dtype::f32;
    expect_gradients_everywhere({desc, Dtype::f32, "", true});
  }
}

double logistic(double z) { return 1.0 / (1.0 + std::exp(-z)); }

// Sums in double, and of absolute values, from which a bound follows.
struct Sum {
  double value = 0;
  double absolute = 0;
  void add(double term) {
    value += term;
    absolute += std::abs(term);
  }
  void add(double term, double most) {
    value += term;
    absolute += most;
  }
};

// f32 only, SwiGLU in halves. Errors grow by the absolute values of all terms on the way: each sum
// has fewer than 200 of them, three follow one another, and slopes change by less than twice an
// error of their inputs, which are below 8 here.
TEST(ExpertsBackward, OneRankGivesWhatADoubleLoopGives) {
  ExpertsDesc desc = layer_desc();
  desc.dtype = Dtype::f32;
  desc.out = Dtype::f32;
  const Experts experts(desc, Dtype::f32, "", true);
  const Batch batch(desc, {30});
  const Values grads = grads_of(batch, desc);
  const Gradients got = by_one_rank(experts, batch, 0);
  const std::int64_t inner = desc.inner;
  const std::int64_t hidden = desc.hidden;
  const auto count = static_cast<std::size_t>(desc.experts);
  std::vector<std::vector<Sum>> up(count), down(count), up_bias(count), down_bias(count);
  for (std::size_t i = 0; i < count; ++i) {
    up[i].resize(static_cast<std::size_t>(2 * inner * hidden));
    down[i].resize(static_cast<std::size_t>(hidden * inner));
    up_bias[i].resize(static_cast<std::size_t>(2 * inner));
    down_bias[i].resize(static_cast<std::size_t>(hidden));
  }
  constexpr double kGrowth = 3 * 200 * 2 * 8;
  const double bound = kGrowth * unit_roundoff(Dtype::f32);
  const auto near = [&](float value, const Sum& sum) {
    return std::abs(value - sum.value) <= bound * (sum.absolute + 1e-3);
  };
  for (std::int64_t row = 0; row < batch.rows(); ++row) {
    std::vector<Sum> grad_x(static_cast<std::size_t>(hidden));
    for (std::int64_t slot = row * desc.top; slot < (row + 1) * desc.top; ++slot) {
      const std::int64_t id = batch.ids[static_cast<std::size_t>(slot)];
      if (id < 0) {
        EXPECT_EQ(got.weights[static_cast<std::size_t>(slot)], 0.0F);
        continue;
      }
      const auto e = static_cast<std::size_t>(id);
      const double weight = batch.weights[static_cast<std::size_t>(slot)];
      const auto u = [&](std::int64_t j) {
        double sum = experts.up_biases[e].at(0, j);
        for (std::int64_t k = 0; k < hidden; ++k)
          sum += static_cast<double>(batch.x.at(row, k)) * experts.up[e].at(j, k);
        return sum;
      };
      Sum grad_weight;
      for (std::int64_t k = 0; k < hidden; ++k) {
        grad_weight.add(static_cast<double>(grads.at(row, k)) * experts.down_biases[e].at(0, k));
        down_bias[e][static_cast<std::size_t>(k)].add(weight * grads.at(row, k));
      }
      for (std::int64_t i = 0; i < inner; ++i) {
        const double gate = u(i);
        const double other = u(inner + i);
        ASSERT_LT(std::max(std::abs(gate), std::abs(other)), 8);
        const double s = logistic(gate);
        const double act = gate * s * other;
        Sum back;
        for (std::int64_t k = 0; k < hidden; ++k)
          back.add(static_cast<double>(grads.at(row, k)) * experts.down[e].at(k, i));
        grad_weight.add(back.value * act, back.absolute * (std::abs(act) + 1));
        const double slopes[] = {other * (s + gate * s * (1 - s)), gate * s};
        for (std::int64_t half = 0; half < 2; ++half) {
          const double grad = back.value * weight * slopes[half];
          const double most = back.absolute * std::abs(weight) * (std::abs(slopes[half]) + 1);
          const std::int64_t j = half * inner + i;
          up_bias[e][static_cast<std::size_t>(j)].add(grad, most);
          for (std::int64_t k = 0; k < hidden; ++k) {
            const double by = experts.up[e].at(j, k);
            grad_x[static_cast<std::size_t>(k)].add(grad * by, most * std::abs(by));
            const double x = batch.x.at(row, k);
            up[e][static_cast<std::size_t>(j * hidden + k)].add(grad * x, most * std::abs(x));
          }
        }
        for (std::int64_t k = 0; k < hidden; ++k) {
          const double by = weight * grads.at(row, k);
          down[e][static_cast<std::size_t>(k * inner + i)].add(by * act,
                                                               std::abs(by) * (std::abs(act) + 1));
        }
      }
      EXPECT_TRUE(near(got.weights[static_cast<std::size_t>(slot)], grad_weight)) << slot;
    }
    for (std::int64_t k = 0; k < hidden; ++k) {
      const auto at = static_cast<std::size_t>(row * hidden + k);
      ASSERT_TRUE(near(got.x[at], grad_x[static_cast<std::size_t>(k)])) << row << ", " << k;
    }
  }
  for (std::size_t e = 0; e < count; ++e) {
    for (std::size_t i = 0; i < up[e].size(); ++i)
      ASSERT_TRUE(near(got.up[e][i], up[e][i])) << got.up[e][i] << " " << up[e][i].value;
    for (std::size_t i = 0; i < down[e].size(); ++i) ASSERT_TRUE(near(got.down[e][i], down[e][i]));
    for (std::size_t i = 0; i < up_bias[e].size(); ++i)
      ASSERT_TRUE(near(got.up_bias[e][i], up_bias[e][i]));
    for (std::size_t i = 0; i < down_bias[e].size(); ++i)
      ASSERT_TRUE(near(got.down_bias[e][i], down_bias[e][i]));
  }
}

TEST(ExpertsBackward, SlopesAreThoseOfTheActivation) {
  const double alpha = 1.702F;
  const double limit = 2.5;
  const auto value = [&](ExpertActivation kind, double gate, double up) {
    gate = std::min(gate, limit);
    const double alone = gate * logistic(alpha * gate);
    return kind == ExpertActivation::silu ? alone : alone * (std::clamp(up, -limit, limit) + 1);
  };
  for (const auto kind :
       {ExpertActivation::swiglu, ExpertActivation::swiglu_interleaved, ExpertActivation::silu}) {
    for (float gate = -4.03F; gate < 4; gate += 0.37F) {
      for (float up = -4.01F; up < 4; up += 0.53F) {
        const float from[] = {gate, up};
        const float grad = 0.75F;
        const float weight = 0.625F;
        float result = 0;
        float slopes[] = {0, 0};
        const std::int64_t outputs = experts::outputs_of(kind, 1);
        const float by_weight = experts::activate_back(
            {.kind = kind, .alpha = 1.702F, .limit = 2.5F, .added = 1},
            {.from = from, .grad = &grad, .weight = weight}, TensorView::of(&result, 1, 1),
            TensorView::of(slopes, 1, outputs));
        // A central difference is off by less than h * h times the third derivative, which is below
        // 8, and by 1e-15 / h, for which h is about best.
        const double h = 1e-5;
        const double most = 1e-8 + 64 * 0x1p-24;
        EXPECT_NEAR(result, weight * value(kind, gate, up), most);
        EXPECT_NEAR(by_weight, grad * value(kind, gate, up), most);
        EXPECT_NEAR(
            slopes[0],
            grad * weight * (value(kind, gate + h, up) - value(kind, gate - h, up)) / (2 * h),
            most);
        if (outputs == 1) continue;
        EXPECT_NEAR(
            slopes[1],
            grad * weight * (value(kind, gate, up + h) - value(kind, gate, up - h)) / (2 * h),
            most);
      }
    }
  }
}

// A packed weight is good for one direction.
TEST(ExpertsBackward, PackedWeightsNeedThoseThatAreTurned) {
  const Experts experts(layer_desc(), Dtype::bf16, "packed", false);
  const Experts plain(layer_desc(), Dtype::bf16, "", false);
  const Batch batch(experts.desc, {12});
  const Values grads = grads_of(batch, experts.desc);
  const Gradients wanted = by_one_rank(plain, batch, 0);
  run_in_threads(1, [&](Communicator& comm) {
    ExpertParallelMLP layer(experts.desc, comm);
    RankCall mine(experts, batch, 0, 12, layer.experts_of(0));
    Gradients got(experts.desc, 12, 5, 0);
    ExpertsBackward call = {.forward = mine.call(), .grad_out = grads.view(), .grad_x = got.x_view};
    EXPECT_TRUE(contains(expect_error(Code::invalid_argument, [&] { layer.backward(call); }).what(),
                         "packed weights need `turned_up`"));
    std::deque<PackedWeight> packed;
    std::vector<Weight> up;
    std::vector<Weight> down;
    for (std::size_t i = 0; i < 5; ++i) {
      packed.emplace_back(plain.up_weights[i].view().turned());
      up.emplace_back(packed.back());
      packed.emplace_back(plain.down_weights[i].view().turned());
      down.emplace_back(packed.back());
    }
    call.turned_up = up;
    call.turned_down = down;
    layer.backward(call);
    EXPECT_TRUE(are_same(got.x, wanted.x.data()));
    ExpertParallelMLP other(experts.desc, comm, {.replicated = true});
    EXPECT_TRUE(contains(expect_error(Code::invalid_argument, [&] { other.backward(call); }).what(),
                         "a layer of replicated batches makes no gradients"));
  });
}

}  // namespace
}  // namespace plait
