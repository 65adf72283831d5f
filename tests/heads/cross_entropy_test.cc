// Losses and gradients: the same bits for all worlds, and near those of plain sums in f64.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>

#include "problem.h"
#include "tensor/kernels.h"

namespace plait {
namespace {

struct Losses {
  std::vector<float> loss, sums, dx, dw;
};

// dx and dw in f32, of a loss whose gradients are 1, 1.5, 2, ...
struct Training {
  const Head& head;
  std::vector<std::int64_t> targets;
  std::vector<float> grads, other;
  CrossEntropyOptions options;

  Training(const Head& of, const CrossEntropyOptions& how) : head(of), options(how) {
    const std::int64_t size = how.vocabulary.vocab_size < 0 ? of.v : how.vocabulary.vocab_size;
    for (std::int64_t row = 0; row < of.m; ++row) {
      targets.push_back(row % 5 == 3 ? how.ignored_target : row * 7919 % size);
      grads.push_back(1 + 0.5F * static_cast<float>(row % 4));
      other.push_back(0.25F * static_cast<float>(row % 3));
    }
  }

  // `at_once`: by matmul_cross_entropy_with_gradient().
  Losses run(Communicator& comm, const std::vector<std::int64_t>& firsts,
             bool at_once = false) const {
    const std::int64_t first = firsts[static_cast<std::size_t>(comm.rank())];
    const std::int64_t count = firsts[static_cast<std::size_t>(comm.rank()) + 1] - first;
    const WeightView weight = head.weight(first, count);
    const auto m = static_cast<std::size_t>(head.m);
    const auto k = static_cast<std::size_t>(head.k);
    Losses found = {.loss = std::vector<float>(m),
                    .sums = std::vector<float>(m),
                    .dx = std::vector<float>(m * k),
                    .dw = std::vector<float>(static_cast<std::size_t>(count) * k)};
    CrossEntropyGradient gradient = {.x = head.x_view(),
                                     .weight = weight,
                                     .targets = targets,
                                     .log_sum_exp = {},
                                     .grad_loss = grads,
                                     .grad_log_sum_exp = other,
                                     .dx = TensorView::of(found.dx.data(), head.m, head.k),
                                     .dw = TensorView::of(found.dw.data(), count, head.k)};
    if (at_once) {
      matmul_cross_entropy_with_gradient(
          gradient, {.losses = found.loss, .log_sum_exp = found.sums}, comm, options);
      return found;
    }
    matmul_cross_entropy({.x = head.x_view(),
                          .weight = weight,
                          .targets = targets,
                          .out = found.loss,
                          .log_sum_exp = found.sums},
                         comm, options);
    gradient.log_sum_exp = found.sums;
    matmul_cross_entropy_gradient(gradient, comm, options);
    return found;
  }

  Losses alone(bool at_once = false) const {
    Losses found;
    run_in_threads(1, [&](Communicator& comm) { found = run(comm, {0, head.v}, at_once); });
    return found;
  }

  // Follows the definition, in f64.
  Losses plain() const {
    const std::vector<float> logits = head.logits(options.vocabulary.logits);
    const auto m = static_cast<std::size_t>(head.m), k = static_cast<std::size_t>(head.k),
               v = static_cast<std::size_t>(head.v);
    const std::size_t size = options.vocabulary.vocab_size < 0
                                 ? v
                                 : static_cast<std::size_t>(options.vocabulary.vocab_size);
    std::vector<float> x(m * k), w(v * k);
    convert(head.x.data(), head.dtype, x.data(), Dtype::f32, x.size());
    convert(head.w.data(), head.dtype, w.data(), Dtype::f32, w.size());
    Losses found;
    std::vector<double> dx(m * k), dw(v * k);
    const double s = options.label_smoothing, z = options.z_loss;
    for (std::size_t row = 0; row < m; ++row) {
      const float* logit = logits.data() + row * v;
      double sum = 0, mean = 0;
      for (std::size_t id = 0; id < size; ++id) {
        sum += std::exp(static_cast<double>(logit[id]));
        mean += logit[id] / static_cast<double>(size);
      }
      const double l = std::log(sum);
      const std::int64_t target = targets[row];
      const bool ignored = target == options.ignored_target;
      found.sums.push_back(static_cast<float>(l));
      found.loss.push_back(
          ignored ? 0
                  : static_cast<float>((1 - s) * (l - logit[target]) + s * (l - mean) + z * l * l));
      const double g = ignored ? 0 : grads[row];
      for (std::size_t id = 0; id < size; ++id) {
        const bool hit = static_cast<std::int64_t>(id) == target && !ignored;
        const double p = std::exp(logit[id] - l);
        const double d =
            g * (p * (1 + 2 * z * l) - (hit ? 1 - s : 0) - s / static_cast<double>(size)) +
            p * other[row];
        for (std::size_t i = 0; i < k; ++i) {
          dx[row * k + i] += d * w[id * k + i];
          dw[id * k + i] += d * x[row * k + i];
        }
      }
    }
    found.dx.assign(dx.begin(), dx.end());
    found.dw.assign(dw.begin(), dw.end());
    return found;
  }
};

void expect_near(const std::vector<float>& found, const std::vector<float>& wanted, double off,
                 const char* what) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_LE(static_cast<double>(std::abs(found[i] - wanted[i])), off) << what << ' ' << i;
}

class CrossEntropyOfRanks : public RanksTest {
 protected:
  // `even`: dx has the bits of one rank too.
  void expect_same_bits(const Head& head, const CrossEntropyOptions& options) const {
    const Training training(head, options);
    const Losses wanted = training.alone();
    run([&](Communicator& comm) {
      for (const bool even : {true, false}) {
        const auto firsts = even ? even_shares(head.v, world()) : odd_shares(head.v, world());
        const Losses found = training.run(comm, firsts);
        EXPECT_TRUE(same_bits(found.loss, wanted.loss));
        EXPECT_TRUE(same_bits(found.sums, wanted.sums));
        const auto first =
            static_cast<std::size_t>(firsts[static_cast<std::size_t>(comm.rank())] * head.k);
        const auto begin = wanted.dw.begin() + static_cast<std::ptrdiff_t>(first);
        EXPECT_TRUE(same_bits(found.dw, std::vector<float>(begin, begin + std::ssize(found.dw))));
        if (even && 16 % world() == 0 && head.v % world() == 0) {
          EXPECT_TRUE(same_bits(found.dx, wanted.dx));
        }
        expect_near(found.dx, wanted.dx, 1e-4, "dx");
        const Losses at_once = training.run(comm, firsts, true);
        EXPECT_TRUE(same_bits(at_once.loss, wanted.loss));
        EXPECT_TRUE(same_bits(at_once.sums, wanted.sums));
        EXPECT_TRUE(same_bits(at_once.dx, found.dx));
        EXPECT_TRUE(same_bits(at_once.dw, found.dw));
      }
    });
  }
};

CrossEntropyOptions all_options(std::int64_t vocab_size = -1) {
  return {.vocabulary = {.vocab_size = vocab_size, .threads = 2},
          .label_smoothing = 0.1F,
          .z_loss = 0.01F};
}

TEST_P(CrossEntropyOfRanks, HasTheBitsOfOneRank) {
  expect_same_bits(Head(5, 1600, 33), {});
  expect_same_bits(Head(70, 2080, 32, Dtype::bf16), all_options(2000));
  expect_same_bits(Head(1, 301, 16), all_options());
  expect_same_bits(Head(3, 1000, 16), {});  // 16 does not divide it, and 8 do
}

// Logits are kept of 512 rows, so the weight's gradient is a sum of two.
TEST_P(CrossEntropyOfRanks, HasTheBitsOfOneRankAtOnce) {
  const Head head(600, 320, 16, Dtype::bf16);
  CrossEntropyOptions options = all_options(310);
  options.vocabulary.logits = Dtype::bf16;
  const Training training(head, options);
  const Losses wanted = training.alone(true);
  const Losses apart = training.alone();
  EXPECT_TRUE(same_bits(wanted.loss, apart.loss) && same_bits(wanted.dx, apart.dx));
  // Sums of 600 terms of at most 8, once more rounded in the middle.
  expect_near(wanted.dw, apart.dw, 600 * 0x1p-24 * 600 * 8, "dw");
  run([&](Communicator& comm) {
    const auto firsts = even_shares(head.v, world());
    const Losses found = training.run(comm, firsts, true);
    const auto first = wanted.dw.begin() + firsts[static_cast<std::size_t>(comm.rank())] * head.k;
    EXPECT_TRUE(same_bits(found.loss, wanted.loss) && same_bits(found.sums, wanted.sums));
    EXPECT_TRUE(same_bits(found.dw, std::vector<float>(first, first + std::ssize(found.dw))));
    if (16 % world() == 0) {
      EXPECT_TRUE(same_bits(found.dx, wanted.dx));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, CrossEntropyOfRanks,
                         worlds_of({.name = "threads", .run = run_as_threads}, {2, 3, 4}),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Shm, CrossEntropyOfRanks,
                         worlds_of({.name = "shm", .run = run_in_processes}, {2, 8}), case_name);

TEST(CrossEntropy, IsNearThePlainOne) {
  for (const CrossEntropyOptions& options :
       {CrossEntropyOptions{}, all_options(), all_options(290)}) {
    const Head head(11, 300, 24);
    const Training training(head, options);
    const Losses found = training.alone();
    const Losses wanted = training.plain();
    // A loss is rounded to f32, and so are the sums that gradients are made of: of at most 300
    // terms of a size of at most 2 · 4.
    expect_near(found.sums, wanted.sums, 64 * 0x1p-23, "sums");
    expect_near(found.loss, wanted.loss, 64 * 0x1p-23, "loss");
    expect_near(found.dx, wanted.dx, 300 * 0x1p-24 * 8 + 64 * 0x1p-24 * 8, "dx");
    expect_near(found.dw, wanted.dw, 64 * 0x1p-24 * 8 * 11, "dw");
  }
}

TEST(CrossEntropy, DoesNotDependOnPadding) {
  const Head head(5, 600, 24);
  const Head padded(5, 700, 24);
  CrossEntropyOptions options = all_options();
  const Losses wanted = Training(head, options).alone();
  options.vocabulary.vocab_size = 600;
  const Losses found = Training(padded, options).alone();
  EXPECT_TRUE(same_bits(found.loss, wanted.loss));
  EXPECT_TRUE(same_bits(found.sums, wanted.sums));
}

TEST(CrossEntropy, RoundsLogitsAsAFrameworkDoes) {
  const Head head(4, 300, 24, Dtype::bf16);
  const Training training(head, {.vocabulary = {.logits = Dtype::bf16}});
  expect_near(training.alone().loss, training.plain().loss, 64 * 0x1p-23, "loss");
}

TEST(CrossEntropy, IsTheLogarithmOfAProbability) {
  const Head head(6, 300, 24);
  const Training training(head, {});
  const Losses wanted = training.alone();
  run_in_threads(2, [&](Communicator& comm) {
    std::vector<float> found(6);
    matmul_log_probs({.x = head.x_view(),
                      .weight = head.weight(std::int64_t{150} * comm.rank(), 150),
                      .targets = training.targets,
                      .out = found},
                     comm);
    for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(found[i], -wanted.loss[i]);
    expect_error(Code::invalid_argument, [&] {
      matmul_log_probs({.x = head.x_view(),
                        .weight = head.weight(std::int64_t{150} * comm.rank(), 150),
                        .targets = training.targets,
                        .out = found},
                       comm, {.z_loss = 1});
    });
  });
}

TEST(CrossEntropy, AddsToAWeightsGradient) {
  const Head head(4, 100, 8);
  const Training training(head, {.vocabulary = {.vocab_size = 90}});
  const Losses once = training.alone();
  for (const bool at_once : {false, true}) {
    std::vector<float> dw(800, 1);
    std::vector<float> losses(4), sums(4);
    run_in_threads(1, [&](Communicator& comm) {
      CrossEntropyGradient call = {.x = head.x_view(),
                                   .weight = head.weight(0, 100),
                                   .targets = training.targets,
                                   .log_sum_exp = {},
                                   .grad_loss = training.grads,
                                   .grad_log_sum_exp = training.other,
                                   .dw = TensorView::of(dw.data(), 100, 8),
                                   .accumulate_dw = true};
      const CrossEntropyResults results = {.losses = losses, .log_sum_exp = sums};
      if (at_once) return matmul_cross_entropy_with_gradient(call, results, comm, training.options);
      call.log_sum_exp = once.sums;
      matmul_cross_entropy_gradient(call, comm, training.options);
    });
    for (std::size_t i = 0; i < 800; ++i) EXPECT_EQ(dw[i], i < 720 ? once.dw[i] + 1 : 1) << i;
  }
  for (std::size_t i = 720; i < 800; ++i) EXPECT_EQ(once.dw[i], 0) << "padding has no gradient";
}

TEST(CrossEntropy, SaysWhatIsNoNumber) {
  Head head(3, 100, 8);
  head.set(head.x, 1, 0, kNotANumber);
  const Losses found = Training(head, {}).alone();
  EXPECT_FALSE(std::isnan(found.loss[0]) || std::isnan(found.loss[2]));
  EXPECT_TRUE(std::isnan(found.loss[1]) && std::isnan(found.sums[1]) && std::isnan(found.dx[8]));
  EXPECT_FALSE(std::isnan(found.dx[0]) || std::isnan(found.dx[16]));
}

// Infinite logits have one too, and each processor makes its own of their difference.
TEST(CrossEntropy, HasOneNotANumber) {
  Head head(3, 100, 8);
  for (std::int64_t row = 1; row < 3; ++row)
    for (std::int64_t i = 0; i < 8; ++i) head.set(head.x, row, i, i > 0 ? 0 : 0x1p127F);
  for (std::int64_t id = 0; id < 100; ++id) head.set(head.w, id, 0, 0x1p127F);
  head.set(head.x, 2, 1, kNotANumber);
  const Losses found = Training(head, {}).alone();
  EXPECT_EQ(found.sums[1], std::numeric_limits<float>::infinity());
  for (const float value : {found.loss[1], found.loss[2], found.sums[2]})
    EXPECT_EQ(std::bit_cast<std::uint32_t>(value), tensor::kNan);
}

TEST(CrossEntropy, TakesNoRows) {
  const Head head(0, 100, 8);
  for (const bool at_once : {false, true}) {
    const Losses found = Training(head, {}).alone(at_once);
    EXPECT_TRUE(found.loss.empty());
    for (const float value : found.dw) EXPECT_EQ(value, 0);
  }
}

// Rank 1 can't multiply, which the others learn when they wait for it.
TEST(CrossEntropy, TellsTheOthersThatARankFailsAlone) {
  const Head head(3, 100, 8);
  for (const bool backward : {false, true}) {
    run_in_threads(2, [&](Communicator& comm) {
      set_timeout(comm, std::chrono::seconds(20));
      CrossEntropyOptions options;
      if (comm.rank() == 1) options.vocabulary.backend = "of no kind";
      const std::vector<std::int64_t> targets(3, 1);
      const std::vector<float> ones(3, 1);
      std::vector<float> loss(3);
      std::vector<float> dx(24);
      const WeightView weight = head.weight(std::int64_t{50} * comm.rank(), 50);
      const Error error = expect_error(Code::invalid_argument, [&] {
        if (!backward) {
          return matmul_cross_entropy(
              {.x = head.x_view(), .weight = weight, .targets = targets, .out = loss}, comm,
              options);
        }
        matmul_cross_entropy_gradient({.x = head.x_view(),
                                       .weight = weight,
                                       .targets = targets,
                                       .log_sum_exp = ones,
                                       .grad_loss = ones,
                                       .dx = TensorView::of(dx.data(), 3, 8)},
                                      comm, options);
      });
      EXPECT_TRUE(contains(error.what(), "of no kind")) << error.what();
    });
  }
}

TEST(CrossEntropy, RefusesPlacesOfGradientsFirst) {
  const Head head(3, 100, 8);
  run_in_threads(1, [&](Communicator& comm) {
    const std::vector<std::int64_t> targets(3, 1);
    const std::vector<float> ones(3, 1);
    std::vector<float> memory(800);
    const auto refusal = [&](const TensorView& dx, const TensorView& dw) {
      return std::string(expect_error(Code::invalid_argument, [&] {
                           matmul_cross_entropy_gradient({.x = head.x_view(),
                                                          .weight = head.weight(0, 100),
                                                          .targets = targets,
                                                          .log_sum_exp = ones,
                                                          .grad_loss = ones,
                                                          .dx = dx,
                                                          .dw = dw},
                                                         comm);
                         }).what());
    };
    const TensorView dx = TensorView::of(memory.data(), 3, 8);
    const TensorView dw = TensorView::of(memory.data(), 100, 8);
    EXPECT_EQ(refusal(dx, dw), "matmul_cross_entropy_gradient: dx overlaps dw");
    TensorView bytes = dw;
    bytes.dtype = Dtype::s8;
    EXPECT_EQ(refusal({}, bytes), "matmul_cross_entropy_gradient: dw can't be s8");
  });
}

TEST(CrossEntropy, RefusesInASentence) {
  const Head head(2, 10, 4);
  const auto sentence = [&](Code code, std::vector<std::int64_t> targets, std::int64_t last,
                            const CrossEntropyOptions& options) {
    std::string said;
    run_in_threads(2, [&](Communicator& comm) {
      std::vector<float> loss(2, -7);
      std::vector<std::int64_t> own = targets;
      if (comm.rank() == 1) own[1] = last;
      const Error error = expect_error(code, [&] {
        matmul_cross_entropy(
            {.x = head.x_view(), .weight = head.weight(0, 10), .targets = own, .out = loss}, comm,
            options);
      });
      EXPECT_EQ(loss[0], -7);
      if (comm.rank() == 0) said = error.what();
    });
    return said;
  };
  EXPECT_EQ(sentence(Code::invalid_argument, {1, 20}, 20, {}),
            "matmul_cross_entropy: the target 20 of row 1 is no id of a vocabulary of 20");
  EXPECT_EQ(sentence(Code::invalid_argument, {-1, 2}, 2, {.vocabulary = {.vocab_size = 15}}),
            "matmul_cross_entropy: the target -1 of row 0 is no id of a vocabulary of 15");
  EXPECT_EQ(sentence(Code::invalid_argument, {1, 2}, 2, {.label_smoothing = 2}),
            "matmul_cross_entropy: label_smoothing is 2; it must be from 0 to 1");
  EXPECT_TRUE(contains(sentence(Code::mismatch, {1, 2}, 3, {}),
                       "matmul_cross_entropy: rank 1 has targets with the fingerprint "));
}

// A rank with other weights of its rows would get a gradient that is mixed of both.
TEST(CrossEntropy, RanksNameTheOneWithOtherWeightsOrWishes) {
  const Head head(2, 20, 8);
  const auto sentence = [&](float weight_of_rank_1, bool rank_1_wants_dx) {
    std::string said;
    run_in_threads(2, [&](Communicator& comm) {
      const bool other = comm.rank() == 1;
      const std::vector<std::int64_t> targets = {1, 2};
      const std::vector<float> grad = {1, other ? weight_of_rank_1 : 1};
      std::vector<float> loss(2);
      std::vector<float> sum(2);
      std::vector<float> dx(16);
      const Error error = expect_error(Code::mismatch, [&] {
        matmul_cross_entropy_with_gradient(
            {.x = head.x_view(),
             .weight = head.weight(std::int64_t{10} * comm.rank(), 10),
             .targets = targets,
             .log_sum_exp = {},
             .grad_loss = grad,
             .dx = !other || rank_1_wants_dx ? TensorView::of(dx.data(), 2, 8) : TensorView()},
            {.losses = loss, .log_sum_exp = sum}, comm, {});
      });
      if (comm.rank() == 0) said = error.what();
    });
    return said;
  };
  EXPECT_TRUE(contains(sentence(2, true), "rank 1 has grad_loss with the fingerprint "));
  EXPECT_TRUE(contains(sentence(1, false), "rank 1 has gradients of x 0, and rank 0 has 1"));
}

}  // namespace
}  // namespace plait
