// The gradient of a loss: logits are computed again, a block of columns at a time, become the
// gradient of the logits, and are multiplied while they are in a cache. If the losses are computed
// in the same call, the logits of some rows are kept for it instead.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/default_floats.h"
#include "base/parallel.h"
#include "comm/session/state.h"
#include "heads/agreement.h"
#include "heads/checks.h"
#include "heads/logits.h"
#include "heads/loops.h"
#include "heads/losses.h"
#include "plait/collectives.h"
#include "plait/trace.h"
#include "tensor/apart.h"
#include "tensor/validate.h"

namespace plait {
namespace heads {
namespace {

constexpr const char* kGradient = "matmul_cross_entropy_gradient";
constexpr const char* kWithGradient = "matmul_cross_entropy_with_gradient";

// Logits are kept of so many rows: fewer would have the weight packed too often, and dw rounded;
// more need more memory.
constexpr std::int64_t kKeptRows = 512;

// dx is the sum over so many parts of the vocabulary, whatever the number of ranks.
constexpr std::int64_t kVocabularyParts = 16;
// Columns of a block, at most: products by fewer take longer, and more need more memory.
constexpr std::int64_t kBlockColumns = 1024;

class Gradient {
 public:
  // `kept`: the logits; no data: they are computed again.
  Gradient(const CrossEntropyGradient& call, const ConstTensorView& kept,
           const Agreement& agreement, Communicator& comm, const CrossEntropyOptions& options)
      : call_(call),
        kept_(kept),
        options_(options),
        first_(agreement.first()),
        total_(agreement.total()),
        vocabulary_(options.vocabulary.vocab_size >= 0 ? options.vocabulary.vocab_size
                                                       : agreement.total()),
        columns_(own_columns(call.weight.n(), first_, vocabulary_)),
        gemm_options_(
            {.backend = options.vocabulary.backend, .threads = options.vocabulary.threads}),
        logits_(
            select_gemm(logits_of(call.x, call.weight, options.vocabulary.logits), gemm_options_)),
        trace_(comm.trace()),
        executor_(comm::product_executor(comm.state().group())) {
    if (executor_ != nullptr) return;
    if (kept_.data == nullptr) logits_.pack({.view = call.x}, packed_x_);
    if (wants_dw())
      x_as_weight_ = std::make_unique<PackedWeight>(WeightView{call.x, WeightLayout::in_out});
  }

  void run(Communicator& comm) {
    const ConstTensorView& x = call_.x;
    if (wants_dx()) {
      sum_ = Buffer::for_tensor(Dtype::f32, x.rows, x.cols);
      const TensorView sum = sum_.view(Dtype::f32, x.rows, x.cols);
      if (!add_parts(0, kVocabularyParts, sum, 0)) std::memset(sum.data, 0, sum.bytes());
      const auto count = static_cast<std::size_t>(x.rows * x.cols);
      Buffer packed;
      TensorView to = call_.dx;
      if (!to.is_contiguous()) {
        packed = Buffer::for_tensor(to.dtype, to.rows, to.cols);
        to = packed.view(to.dtype, to.rows, to.cols);
      }
      all_reduce({sum.data, count, Dtype::f32}, {to.data, count, to.dtype}, comm);
      for (std::int64_t row = 0; packed.bytes() > 0 && row < to.rows; ++row)
        std::memcpy(call_.dx.row(row), to.row(row), to.row_bytes());
    } else {
      add_parts(0, kVocabularyParts, {}, 0);
    }
    if (wants_dw() && !call_.accumulate_dw) {
      for (std::int64_t row = columns_; row < call_.dw.rows; ++row)
        std::memset(call_.dw.row(row), 0, call_.dw.row_bytes());
    }
  }

 private:
  bool wants_dx() const { return call_.dx.data != nullptr; }
  bool wants_dw() const { return call_.dw.data != nullptr; }

  // Parts [begin, end) of the vocabulary as a tree: false if this rank has no columns of them.
  bool add_parts(std::int64_t begin, std::int64_t end, const TensorView& to, std::size_t level) {
    if (end - begin == 1) {
      const auto at = [&](std::int64_t part) {
        return std::clamp<std::int64_t>(total_ * part / kVocabularyParts - first_, 0, columns_);
      };
      return run_part({at(begin), at(end)}, to);
    }
    const std::int64_t middle = (begin + end) / 2;
    const bool has_left = add_parts(begin, middle, to, level + 1);
    if (!has_left || !wants_dx()) {
      const bool has_right = add_parts(middle, end, to, level + 1);
      return has_left || has_right;
    }
    if (levels_.size() <= level) levels_.resize(level + 1);
    if (levels_[level].bytes() == 0)
      levels_[level] = Buffer::for_tensor(Dtype::f32, to.rows, to.cols);
    const TensorView right = levels_[level].view(Dtype::f32, to.rows, to.cols);
    if (add_parts(middle, end, right, level + 1)) add(right, to);
    return true;
  }

  void add(const TensorView& from, const TensorView& to) const {
    const auto bytes = static_cast<std::int64_t>(to.bytes());
    if (executor_ != nullptr) executor_->run({.label = "sum", .read = 2 * bytes, .written = bytes});
    base::parallel_for(to.rows, threads(), [&](std::int64_t row) {
      const auto* source = static_cast<const float*>(from.row(row));
      auto* sum = static_cast<float*>(to.row(row));
      for (std::int64_t i = 0; i < to.cols; ++i) sum[i] += source[i];
    });
  }

  bool run_part(Range columns, const TensorView& dx) {
    if (columns.begin == columns.end) return false;
    for (std::int64_t begin = columns.begin; begin < columns.end; begin += kBlockColumns) {
      const Range block = {begin, std::min(begin + kBlockColumns, columns.end)};
      if (executor_ != nullptr) {
        spend_time(block.end - block.begin);
        continue;
      }
      const Span span(trace_, Lane::compute, "product");
      const ConstTensorView grad = gradient_of_logits(block);
      if (wants_dx()) {
        const WeightView weight = rows_of_weight(block);
        product(dx_, grad.cols,
                {.n = dx.cols, .k = grad.cols, .weight = weight.view.dtype, .out = Dtype::f32})
            .run({.x = {.view = grad},
                  .weight = weight,
                  .out = dx,
                  .accumulate = begin != columns.begin});
      }
      if (wants_dw()) {
        product(
            dw_, 0,
            {.n = call_.x.cols, .k = call_.x.rows, .weight = call_.x.dtype, .out = call_.dw.dtype})
            .run({.x = {.view = grad, .transposed = true},
                  .weight = *x_as_weight_,
                  .out = call_.dw.row_range(block.begin, block.end),
                  .accumulate = call_.accumulate_dw});
      }
    }
    return true;
  }

  // Has the executor take the time of so many columns.
  void spend_time(std::int64_t columns) const {
    const std::int64_t rows = call_.x.rows;
    const std::int64_t k = call_.x.cols;
    const Dtype x = call_.x.dtype;
    const Dtype logits = options_.vocabulary.logits;
    const auto multiply = [&](const GemmDesc& desc) {
      executor_->multiply(work_of(desc, desc.m, desc.n), [] {});
    };
    const Dtype weight = call_.weight.view.dtype;
    if (kept_.data == nullptr)
      multiply({.m = rows, .n = columns, .k = k, .x = x, .weight = weight, .out = logits});
    const auto bytes = [&](Dtype dtype) {
      return rows * columns * static_cast<std::int64_t>(size_of(dtype));
    };
    executor_->run({.label = "softmax", .read = bytes(logits), .written = bytes(x)});
    if (wants_dx())
      multiply({.m = rows, .n = k, .k = columns, .x = x, .weight = weight, .out = Dtype::f32});
    if (wants_dw())
      multiply({.m = columns, .n = k, .k = rows, .x = x, .weight = x, .out = call_.dw.dtype});
  }

  struct Sizes {
    std::int64_t n;
    std::int64_t k;
    Dtype weight;
    Dtype out;
  };
  using Products = std::map<std::int64_t, Gemm>;
  Gemm& product(Products& products, std::int64_t key, const Sizes& sizes) const {
    const auto found = products.find(key);
    if (found != products.end()) return found->second;
    return products
        .emplace(key, select_gemm({.m = call_.x.rows,
                                   .n = sizes.n,
                                   .k = sizes.k,
                                   .x = call_.x.dtype,
                                   .weight = sizes.weight,
                                   .out = sizes.out},
                                  gemm_options_))
        .first->second;
  }

  // Inputs and outputs change places: these columns of the logits are what dx sums over.
  WeightView rows_of_weight(Range columns) const {
    WeightView weight = call_.weight;
    weight.view = weight.layout == WeightLayout::out_in
                      ? weight.view.row_range(columns.begin, columns.end)
                      : weight.view.column_range(columns.begin, columns.end);
    return weight.turned();
  }

  ConstTensorView gradient_of_logits(Range columns) {
    const std::int64_t rows = call_.x.rows;
    const std::int64_t count = columns.end - columns.begin;
    const Dtype dtype = options_.vocabulary.logits;
    const auto room = [&](Buffer& buffer, Dtype of) {
      const auto bytes =
          static_cast<std::size_t>(rows * std::min(kBlockColumns, columns_)) * size_of(of);
      if (buffer.bytes() < bytes) buffer = Buffer(bytes);
      return buffer.view(of, rows, count);
    };
    const TensorView grad = room(grad_, call_.x.dtype);
    ConstTensorView logits = kept_;
    if (kept_.data != nullptr) {
      logits = kept_.column_range(columns.begin, columns.end);
    } else {
      const TensorView again = room(block_, dtype);
      logits_.run({.x = {.view = call_.x},
                   .weight = call_.weight,
                   .out = again,
                   .window = {.columns = columns},
                   .packed_x = &packed_x_});
      logits = again;
    }
    base::parallel_for(rows, threads(), [&](std::int64_t row) {
      std::vector<float> values(static_cast<std::size_t>(count));
      convert(logits.row(row), dtype, values.data(), Dtype::f32, values.size());
      differentiate(row, first_ + columns.begin, values);
      convert(values.data(), Dtype::f32, grad.row(row), grad.dtype, values.size());
    });
    return grad;
  }

  // Logits of a row, from an id on, become their gradient.
  void differentiate(std::int64_t at, std::int64_t first, std::vector<float>& values) const {
    const auto row = static_cast<std::size_t>(at);
    const bool ignored = call_.targets[row] == options_.ignored_target;
    const double loss = ignored ? 0 : static_cast<double>(call_.grad_loss[row]);
    const double other =
        call_.grad_log_sum_exp.empty() ? 0 : static_cast<double>(call_.grad_log_sum_exp[row]);
    if (loss == 0 && other == 0) return std::fill(values.begin(), values.end(), 0.0F);
    const double sum = call_.log_sum_exp[row];
    if (sum - sum != 0)
      return std::fill(values.begin(), values.end(), std::numeric_limits<float>::quiet_NaN());
    const double smoothing = options_.label_smoothing;
    Softmax how = {.shift = sum,
                   .scale = loss * (1 + 2 * static_cast<double>(options_.z_loss) * sum) + other,
                   .offset = -loss * smoothing / static_cast<double>(vocabulary_)};
    const std::int64_t target = call_.targets[row];
    const auto count = static_cast<std::int64_t>(values.size());
    const bool has_target = !ignored && target >= first && target < first + count;
    float* const there = has_target ? &values[static_cast<std::size_t>(target - first)] : nullptr;
    const float logit = has_target ? *there : 0;
    loops_.softmax(how, values.data(), count, values.data());
    if (!has_target) return;
    how.offset -= loss * (1 - smoothing);
    loops_.softmax(how, &logit, 1, there);
  }

  int threads() const { return options_.vocabulary.threads; }

  const CrossEntropyGradient& call_;
  ConstTensorView kept_;
  const CrossEntropyOptions& options_;
  std::int64_t first_;
  std::int64_t total_;
  std::int64_t vocabulary_;
  std::int64_t columns_;
  GemmOptions gemm_options_;
  Gemm logits_;
  Trace* trace_;
  comm::Executor* executor_;  // takes the products; null: they are multiplied
  const Loops& loops_ = loops();
  PackedInput packed_x_;
  std::unique_ptr<PackedWeight> x_as_weight_;
  Products dx_;  // by k
  Products dw_;
  Buffer block_, grad_, sum_;
  std::vector<Buffer> levels_;  // of the tree
};

void check(const char* name, const CrossEntropyGradient& call, const CrossEntropyOptions& options) {
  const std::int64_t rows = call.x.rows;
  check_operands(name, call.x, call.weight, options.vocabulary);
  check_options(name, options);
  check_size(name, "targets", call.targets.size(), rows);
  check_size(name, "grad_loss", call.grad_loss.size(), rows);
  if (!call.grad_log_sum_exp.empty())
    check_size(name, "grad_log_sum_exp", call.grad_log_sum_exp.size(), rows);
  const auto check_place = [name](const char* what, const TensorView& to, std::int64_t wanted_rows,
                                  std::int64_t wanted_cols) {
    PLAIT_CHECK(to.data == nullptr || (to.rows == wanted_rows && to.cols == wanted_cols), name,
                ": ", what, " is [", to.rows, ", ", to.cols, "], not [", wanted_rows, ", ",
                wanted_cols, ']');
    if (to.data == nullptr) return;
    tensor::validate_on_cpu(to, base::sentence(name, ": ", what));
    PLAIT_CHECK(to.dtype != Dtype::s8, name, ": ", what, " can't be s8");
  };
  check_place("dx", call.dx, rows, call.x.cols);
  check_place("dw", call.dw, call.weight.n(), call.x.cols);
  const auto check_apart = [name](const char* what, const TensorView& to, const char* other_what,
                                  const ConstTensorView& other) {
    PLAIT_CHECK(to.data == nullptr || other.data == nullptr || tensor::are_apart(to, other), name,
                ": ", what, " overlaps ", other_what);
  };
  check_apart("dx", call.dx, "x", call.x);
  check_apart("dx", call.dx, "the weight", call.weight.view);
  check_apart("dw", call.dw, "x", call.x);
  check_apart("dw", call.dw, "the weight", call.weight.view);
  check_apart("dx", call.dx, "dw", call.dw);
}

// Collective. Ranks agree about the call and learn one another's shares. `grad_loss` is compared
// where callers make it from what they were given; what autograd has made need not have one bit
// pattern.
Agreement agree(const char* name, const CrossEntropyGradient& call,
                std::span<const float> grad_loss, Communicator& comm,
                const CrossEntropyOptions& options) {
  const std::int64_t vocab_size = options.vocabulary.vocab_size;
  Agreement agreement(name, comm,
                      {.rows = call.x.rows,
                       .k_of_x = call.x.cols,
                       .vocab_size = vocab_size,
                       .wants_dx = call.dx.data != nullptr ? 1 : 0,
                       .targets = fingerprint_of(call.targets),
                       .options = fingerprint_of(options),
                       .grad_loss = fingerprint_of(grad_loss)},
                      {.share = call.weight.n(), .first = options.vocabulary.first_id});
  agreement.gather({});
  check_targets(name, call.targets, vocab_size >= 0 ? vocab_size : agreement.total(),
                options.ignored_target);
  return agreement;
}

// Some rows of a call. All but the first add to dw.
CrossEntropyGradient rows_of(const CrossEntropyGradient& call, Range rows) {
  CrossEntropyGradient some = call;
  const auto cut = [&](auto& span) {
    if (!span.empty())
      span = span.subspan(static_cast<std::size_t>(rows.begin),
                          static_cast<std::size_t>(rows.end - rows.begin));
  };
  some.x = call.x.row_range(rows.begin, rows.end);
  if (call.dx.data != nullptr) some.dx = call.dx.row_range(rows.begin, rows.end);
  cut(some.targets);
  cut(some.log_sum_exp);
  cut(some.grad_loss);
  cut(some.grad_log_sum_exp);
  some.accumulate_dw = call.accumulate_dw || rows.begin > 0;
  return some;
}

}  // namespace
}  // namespace heads

void matmul_cross_entropy_gradient(const CrossEntropyGradient& call, Communicator& comm,
                                   const CrossEntropyOptions& options) {
  using namespace heads;  // NOLINT(google-build-using-namespace): the call's own parts
  const Communicator::State::Use use(comm.state());
  const base::DefaultFloats floats;
  check(kGradient, call, options);
  check_size(kGradient, "log_sum_exp", call.log_sum_exp.size(), call.x.rows);
  const Agreement agreement = agree(kGradient, call, {}, comm, options);
  fail_together(kGradient, comm, [&] { Gradient(call, {}, agreement, comm, options).run(comm); });
}

void matmul_cross_entropy_with_gradient(const CrossEntropyGradient& call,
                                        const CrossEntropyResults& results, Communicator& comm,
                                        const CrossEntropyOptions& options) {
  using namespace heads;  // NOLINT(google-build-using-namespace): the call's own parts
  const Communicator::State::Use use(comm.state());
  const base::DefaultFloats floats;
  const std::int64_t rows = call.x.rows;
  const VocabularyOptions& how = options.vocabulary;
  check(kWithGradient, call, options);
  check_size(kWithGradient, "call.log_sum_exp", call.log_sum_exp.size(), 0);
  check_size(kWithGradient, "losses", results.losses.size(), rows);
  check_size(kWithGradient, "log_sum_exp", results.log_sum_exp.size(), rows);
  Agreement agreement = agree(kWithGradient, call, call.grad_loss, comm, options);
  const std::int64_t columns = own_columns(call.weight.n(), agreement.first(), how.vocab_size);
  CrossEntropyGradient whole = call;
  whole.log_sum_exp = results.log_sum_exp;
  Buffer memory;
  fail_together(kWithGradient, comm, [&] {
    memory = Buffer::for_tensor(how.logits, std::min(rows, kKeptRows), columns);
  });
  std::int64_t begin = 0;
  do {
    const Range some = {begin, std::min(begin + kKeptRows, rows)};
    const CrossEntropyGradient block = rows_of(whole, some);
    const auto first = static_cast<std::size_t>(begin);
    const CrossEntropyCall losses = {
        .x = block.x,
        .weight = block.weight,
        .targets = block.targets,
        .out = results.losses.subspan(first, block.targets.size()),
        .log_sum_exp = results.log_sum_exp.subspan(first, block.targets.size())};
    const TensorView kept = memory.view(how.logits, block.x.rows, columns);
    const std::vector<RowSums> sums = sums_of_rows(losses, agreement, kept, comm, options);
    write_losses(losses, sums, 1, how.vocab_size >= 0 ? how.vocab_size : agreement.total(),
                 options);
    fail_together(kWithGradient, comm,
                  [&] { Gradient(block, kept, agreement, comm, options).run(comm); });
    begin = some.end;
  } while (begin < rows);
}

}  // namespace plait
