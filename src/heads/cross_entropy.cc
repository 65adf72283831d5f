#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/default_floats.h"
#include "comm/session/state.h"
#include "heads/agreement.h"
#include "heads/checks.h"
#include "heads/logits.h"
#include "heads/losses.h"
#include "plait/trace.h"
#include "tensor/kernels.h"

namespace plait {
namespace heads {
namespace {

constexpr const char* kCrossEntropy = "matmul_cross_entropy";
constexpr const char* kLogProbs = "matmul_log_probs";

std::vector<RowSums> own_rows(const CrossEntropyCall& call, std::int64_t first,
                              const TensorView& keep, Communicator& comm,
                              const CrossEntropyOptions& options) {
  const VocabularyOptions& how = options.vocabulary;
  const std::int64_t columns = own_columns(call.weight.n(), first, how.vocab_size);
  const bool mean = options.label_smoothing > 0;
  const Span span(comm.trace(), Lane::compute, "product",
                  {.flops = 2 * call.x.rows * call.weight.n() * call.weight.k()});
  std::vector<std::vector<RowSums>> rows(
      static_cast<std::size_t>(Logits::workers(call.x.rows, columns, how.threads)),
      std::vector<RowSums>(static_cast<std::size_t>(call.x.rows)));
  const Loops& by = loops();
  const Logits::Product product = {call.x, call.weight, columns, keep};
  Logits::of(comm).run(product, how, [&](const LogitRow& some) {
    RowSums& row = rows[static_cast<std::size_t>(some.thread)][static_cast<std::size_t>(some.row)];
    row.add(by, some.values, some.count, mean);
    const std::int64_t begin = first + some.first_column;
    const std::int64_t target = call.targets[static_cast<std::size_t>(some.row)];
    if (target >= begin && target < begin + some.count) row.target = some.values[target - begin];
  });
  for (std::size_t thread = 1; thread < rows.size(); ++thread) {
    for (std::size_t row = 0; row < rows[0].size(); ++row) rows[0][row].add(rows[thread][row]);
  }
  return std::move(rows[0]);
}

double loss_of(const RowSums& row, std::int64_t vocabulary, const CrossEntropyOptions& options) {
  const double sum = row.log_sum_exp();
  const double smoothing = options.label_smoothing;
  const double unlikeliness = sum - static_cast<double>(row.target);
  // Below 0 it is by a rounding alone: no id is likelier than 1.
  double loss = (1 - smoothing) * (unlikeliness < 0 ? 0 : unlikeliness);
  if (smoothing > 0) {
    const double mean = static_cast<double>(row.logits) * kInMean / static_cast<double>(vocabulary);
    loss += smoothing * (sum - mean);
  }
  if (options.z_loss != 0) loss += static_cast<double>(options.z_loss) * sum * sum;
  return loss;
}

// Each row's loss times `sign`.
void run(const char* name, const CrossEntropyCall& call, double sign, Communicator& comm,
         const CrossEntropyOptions& options) {
  const Communicator::State::Use use(comm.state());
  const base::DefaultFloats floats;
  const VocabularyOptions& how = options.vocabulary;
  check_operands(name, call.x, call.weight, how);
  check_options(name, options);
  check_size(name, "targets", call.targets.size(), call.x.rows);
  check_size(name, "out", call.out.size(), call.x.rows);
  if (!call.log_sum_exp.empty())
    check_size(name, "log_sum_exp", call.log_sum_exp.size(), call.x.rows);
  if (how.vocab_size >= 0)
    check_targets(name, call.targets, how.vocab_size, options.ignored_target);
  Agreement agreement(name, comm,
                      {.rows = call.x.rows,
                       .k_of_x = call.x.cols,
                       .vocab_size = how.vocab_size,
                       .targets = fingerprint_of(call.targets),
                       .options = fingerprint_of(options)},
                      {.share = call.weight.n(), .first = how.first_id});
  agreement.find_place();
  const std::vector<RowSums> rows = sums_of_rows(call, agreement, {}, comm, options);
  const std::int64_t vocabulary = how.vocab_size >= 0 ? how.vocab_size : agreement.total();
  check_targets(name, call.targets, vocabulary, options.ignored_target);
  write_losses(call, rows, sign, vocabulary, options);
}

}  // namespace

std::vector<RowSums> sums_of_rows(const CrossEntropyCall& call, Agreement& agreement,
                                  const TensorView& keep, Communicator& comm,
                                  const CrossEntropyOptions& options) {
  std::vector<RowSums> rows;
  fail_together(agreement.name(), comm,
                [&] { rows = own_rows(call, agreement.first(), keep, comm, options); });
  const std::vector<std::byte> all = agreement.gather(std::as_bytes(std::span(rows)));
  std::fill(rows.begin(), rows.end(), RowSums());
  for (std::size_t i = 0; i * sizeof(RowSums) < all.size(); ++i) {
    RowSums one;
    std::memcpy(&one, all.data() + i * sizeof one, sizeof one);
    if (!one.is_possible()) {
      const auto rank = static_cast<int>(i / rows.size());
      throw Error(
          Code::mismatch,
          base::sentence(agreement.name(), ": rank ", rank, " sends sums of no exponentials"),
          rank);
    }
    rows[i % rows.size()].add(one);
  }
  return rows;
}

void write_losses(const CrossEntropyCall& call, std::span<const RowSums> rows, double sign,
                  std::int64_t vocabulary, const CrossEntropyOptions& options) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool ignored = call.targets[i] == options.ignored_target;
    const double loss = ignored ? 0 : sign * loss_of(rows[i], vocabulary, options);
    call.out[i] = tensor::with_one_nan(static_cast<float>(loss));
    if (!call.log_sum_exp.empty())
      call.log_sum_exp[i] = tensor::with_one_nan(static_cast<float>(rows[i].log_sum_exp()));
  }
}

}  // namespace heads

void matmul_cross_entropy(const CrossEntropyCall& call, Communicator& comm,
                          const CrossEntropyOptions& options) {
  heads::run(heads::kCrossEntropy, call, 1, comm, options);
}

void matmul_log_probs(const CrossEntropyCall& call, Communicator& comm,
                      const CrossEntropyOptions& options) {
  PLAIT_CHECK(options.label_smoothing == 0 && options.z_loss == 0, heads::kLogProbs,
              ": label_smoothing and z_loss belong to losses");
  heads::run(heads::kLogProbs, call, -1, comm, options);
}

}  // namespace plait
