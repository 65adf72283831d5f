// The end of a language model: a product by ranks' shares of a vocabulary, and what follows it.
//
//   std::vector<float> values(m * 5);
//   std::vector<std::int64_t> ids(m * 5);
//   plait::matmul_top(x, w, {.k = 5, .values = values, .ids = ids}, comm);
//
//   plait::matmul_cross_entropy({.x = x, .weight = w, .targets = targets, .out = loss,
//                                .log_sum_exp = sums}, comm, {.label_smoothing = 0.1F});
//
// All ranks have the same x [m, k_of_x] and targets. Each has some rows of the vocabulary's weight
// [ids, k_of_x], and gets the results of all: the first rank's ids begin with 0, and the shares may
// differ or be empty. The logits of all rows are never in memory together: each block of them is
// used while it is in a cache, and a rank sends a few numbers for each row in place of its logits.
//
// A logit has the bits that matmul() gives on one rank. So have values and ids of matmul_top(). The
// exponentials of a row are added as whole numbers, exactly, and so in any order. Losses and sums
// therefore have the same bits for every number of ranks and threads, for all shares, for every
// padding, and on every processor that gives the logits the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "plait/communicator.h"
#include "plait/dtype.h"
#include "plait/export.h"
#include "plait/tensor_view.h"
#include "plait/weight.h"

namespace plait {

inline constexpr std::int64_t kMostTop = 1024;
inline constexpr std::int64_t kMostVocabulary = std::int64_t{1} << 22;

// All ranks give the same, except for first_id, threads and backend.
struct VocabularyOptions {
  // Rows of the weight from this id on only pad it: they have no logits. -1: there are none.
  std::int64_t vocab_size = -1;

  // The id of this rank's first row. If all ranks give it, matmul_cross_entropy(),
  // matmul_log_probs() and a matmul_top() with a vocab_size save an exchange. -1: not given.
  std::int64_t first_id = -1;

  // The dtype to which logits are rounded before they are used: f32, or the one in which a
  // framework has them, so that the same are equal.
  Dtype logits = Dtype::f32;

  int threads = 0;           // 0: as many as OpenMP would use
  std::string backend = {};  // of the product; empty: the best
};

// The k largest logits of each row: the largest first, and of equal ones the lowest id first. -0
// equals 0. A NaN comes before all numbers, so that it is seen. k is at most kMostTop, and at most
// the vocabulary's size.
struct Top {
  std::int64_t k;
  std::span<float> values;      // [m, k]
  std::span<std::int64_t> ids;  // [m, k]
};

// Collective. The weight may be packed and quantised.
PLAIT_EXPORT void matmul_top(const ConstTensorView& x, const Weight& weight, const Top& top,
                             Communicator& comm, const VocabularyOptions& options = {});

struct CrossEntropyOptions {
  VocabularyOptions vocabulary = {};

  // loss = (1 - s)·(L - x_target) + s·(L - mean of x) + z·L·L, with a row's logits x and L the
  // logarithm of the sum of their exponentials, over the ids that don't pad. In the mean, a logit
  // counts as a multiple of 2^-24 of at most 65536.
  float label_smoothing = 0;  // s, from 0 to 1
  float z_loss = 0;           // z

  // A row with this target has a loss and a gradient of 0.
  std::int64_t ignored_target = -100;
};

// A row with a NaN among its logits, or with an infinite one above all others, has results that say
// so.
struct CrossEntropyCall {
  ConstTensorView x;
  Weight weight;                          // may be packed and quantised
  std::span<const std::int64_t> targets;  // [m] ids
  std::span<float> out;                   // [m]
  std::span<float> log_sum_exp = {};      // [m], or none; of ignored rows too
};

// Collective. `out` receives the losses.
PLAIT_EXPORT void matmul_cross_entropy(const CrossEntropyCall& call, Communicator& comm,
                                       const CrossEntropyOptions& options = {});

// Collective. `out` receives the logarithms of the targets' probabilities, as reinforcement
// learning compares them; 0 for rows with options.ignored_target. The other options of a loss must
// not be set. The gradient is that of the loss, with the opposite sign.
PLAIT_EXPORT void matmul_log_probs(const CrossEntropyCall& call, Communicator& comm,
                                   const CrossEntropyOptions& options = {});

// The gradient of matmul_cross_entropy(). Logits are computed again, a block at a time, and those
// of the loss are rounded to x's dtype before they are multiplied.
struct CrossEntropyGradient {
  ConstTensorView x;
  WeightView weight;
  std::span<const std::int64_t> targets;
  std::span<const float> log_sum_exp;            // of the forward pass
  std::span<const float> grad_loss;              // [m]
  std::span<const float> grad_log_sum_exp = {};  // [m], or none
  TensorView dx = {};          // [m, k_of_x], summed over ranks; no data: not wanted
  TensorView dw = {};          // as the weight, out_in; no data: not wanted
  bool accumulate_dw = false;  // adds to the values in dw
};

// Collective: all ranks want dx, or none does. dx is added up over 16 parts of the vocabulary, as a
// tree. If the ranks' shares are equal and there are 1, 2, 4, 8 or 16 of them, its bits are those
// of one rank whose weight has as many rows, padding included. Otherwise it has the same bits in
// every run.
PLAIT_EXPORT void matmul_cross_entropy_gradient(const CrossEntropyGradient& call,
                                                Communicator& comm,
                                                const CrossEntropyOptions& options = {});

// The results of losses that are computed beside their gradient: both [m].
struct CrossEntropyResults {
  std::span<float> losses;
  std::span<float> log_sum_exp;
};

// Collective. Losses and their gradient at once, for a caller that knows grad_loss, the same on all
// ranks, before the losses: three products in place of four. call.log_sum_exp must be empty. 512
// rows at a time are multiplied, and their logits kept until their gradient is done. Losses and dx
// have the bits of the two calls above. dw is rounded to its dtype after each 512 rows: up to 512
// its bits are the same too, and it always has those of one rank.
PLAIT_EXPORT void matmul_cross_entropy_with_gradient(const CrossEntropyGradient& call,
                                                     const CrossEntropyResults& results,
                                                     Communicator& comm,
                                                     const CrossEntropyOptions& options = {});

}  // namespace plait
