// The calls of an operator of plait/ulysses.h, whose results must have the bits of one rank.
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "ops/shapes.h"
#include "plait/gemm.h"
#include "plait/packed_weight.h"
#include "verify/check.h"

namespace plait::verify {
namespace {

Guarded made(const UlyssesCase& one, Dtype dtype, const Range& rows, std::int64_t cols,
             std::uint64_t which) {
  Guarded matrix(dtype, ops::length(rows), cols);
  fill(matrix.view(), one.numbers, one.seed * 4 + which, {.row = rows.begin});
  return matrix;
}

// The columns of a group side by side.
Guarded columns_of(const ConstTensorView& whole, const std::vector<ColumnRange>& group) {
  std::int64_t count = 0;
  for (const ColumnRange& range : group) count += range.count;
  Guarded part(whole.dtype, whole.rows, count);
  std::int64_t at = 0;
  for (const ColumnRange& range : group) {
    for (std::int64_t row = 0; row < whole.rows; ++row) {
      const ConstTensorView from =
          whole.row_range(row, row + 1).column_range(range.first, range.first + range.count);
      const TensorView to = part.view().row_range(row, row + 1).column_range(at, at + range.count);
      convert(from.data, from.dtype, to.data, to.dtype, static_cast<std::size_t>(range.count));
    }
    at += range.count;
  }
  return part;
}

Guarded x_of(const UlyssesCase& one, std::size_t rank = 0) {
  return made(one, one.x, {0, one.m}, one.k, kSeedOfX + 4 * rank);
}

// The x of all ranks together. What several of them have is summed in f32, in the order of ranks,
// and rounded once.
Guarded summed(const UlyssesCase& one) {
  std::vector<float> sums(static_cast<std::size_t>(one.m * one.k));
  std::vector<bool> seen(static_cast<std::size_t>(one.k));
  for (std::size_t rank = 0; rank < one.columns.size(); ++rank) {
    const Guarded x = x_of(one, rank);
    for (const ColumnRange& range : one.columns[rank]) {
      for (std::int64_t col = range.first; col < range.first + range.count; ++col) {
        for (std::int64_t row = 0; row < one.m; ++row) {
          const auto value = static_cast<float>(element(x.view(), row, col));
          float& sum = sums[static_cast<std::size_t>(row * one.k + col)];
          sum = seen[static_cast<std::size_t>(col)] ? sum + value : value;
        }
        seen[static_cast<std::size_t>(col)] = true;
      }
    }
  }
  Guarded all(one.x, one.m, one.k);
  for (std::int64_t row = 0; row < one.m; ++row) {
    convert(sums.data() + row * one.k, Dtype::f32, all.view().row(row), one.x,
            static_cast<std::size_t>(one.k));
  }
  return all;
}

class UlyssesSubject final : public Subject {
 public:
  UlyssesSubject(const UlyssesCase& one, Communicator& comm)
      : Subject(one, comm),
        case_(one),
        own_(ops::shard_of(one.m, comm.rank(), comm.world())),
        x_(x_of(one)),
        bias_(made(one, one.out, {0, 1}, one.n, kSeedOfBias)) {
    const bool out_in = one.layout == WeightLayout::out_in;
    weight_ = Guarded(one.scheme ? Dtype::f32 : one.weight, out_in ? one.n : one.k,
                      out_in ? one.k : one.n);
    // A weight to be quantised must be finite.
    fill(weight_.view(), one.scheme ? Numbers::usual : one.numbers, one.seed * 4 + kSeedOfWeight);
    if (one.scheme) {
      packed_.emplace(quantize(plain(), *one.scheme, /*threads=*/1));
    } else if (one.packed) {
      packed_.emplace(plain());
    }
    if (one.product_first) return;
    const std::size_t own_x = one.shared ? static_cast<std::size_t>(comm.rank()) : 0;
    part_ = columns_of(x_of(one, own_x).view(), group());
    if (one.shared) x_ = summed(one);
  }

 private:
  std::size_t variants() const override { return case_.variants.size(); }

  std::string place_of(std::size_t number, std::size_t) const override {
    return base::sentence("with the plan \"", name(case_.variants[number - 1].plan), "\": ");
  }

  WeightView plain() const { return {.view = weight_.view(), .layout = case_.layout}; }
  Weight weight() const {
    if (packed_) return *packed_;
    return plain();
  }
  ConstTensorView bias() const { return case_.bias ? bias_.view() : TensorView{}; }
  const std::vector<ColumnRange>& group() const {
    return case_.columns[static_cast<std::size_t>(comm_.rank())];
  }

  std::vector<Results> run(std::size_t number) override {
    const UlyssesVariant variant = number == 0
                                       ? UlyssesVariant{.plan = {.schedule = Schedule::serial}}
                                       : case_.variants[number - 1];
    UlyssesOptions options = {.plan = variant.plan, .threads = variant.threads, .bias = bias()};
    std::int64_t columns = 0;
    for (const ColumnRange& range : group()) columns += range.count;
    Results results;
    results.push_back({"out", case_.product_first
                                  ? Guarded(case_.out, case_.m, columns)
                                  : Guarded(case_.out, ops::length(own_), case_.n)});
    if (case_.gathered) {
      results.push_back({"gathered", Guarded(case_.x, ops::length(own_), case_.k)});
      options.gathered = results.back().matrix.view();
    }
    for (Result& result : results) result.matrix.poison();
    const bool kept = call_in_some_mode([&] {
      if (case_.product_first) {
        matmul_all_to_all(x_.view().row_range(own_.begin, own_.end), weight(), case_.columns,
                          results[0].matrix.view(), comm_, options);
      } else {
        all_to_all_matmul(part_.view(), weight(), case_.columns, results[0].matrix.view(), comm_,
                          options);
      }
    });
    if (!kept) note(aside_, "a call has changed the thread's float mode");
    std::vector<Results> calls;
    calls.push_back(std::move(results));
    return calls;
  }

  // The product that one rank makes of all rows.
  std::string check_serial(const std::vector<Results>& serial) override {
    Guarded whole(case_.out, case_.m, case_.n);
    select_gemm({.m = case_.m,
                 .n = case_.n,
                 .k = case_.k,
                 .x = case_.x,
                 .weight = case_.scheme ? Dtype::bf16 : case_.weight,
                 .out = case_.out,
                 .quant = case_.scheme},
                {.threads = 1})
        .run({.x = {.view = x_.view()}, .weight = weight(), .out = whole.view(), .bias = bias()});
    const Guarded part = case_.product_first ? columns_of(whole.view(), group()) : Guarded();
    const ConstTensorView wanted = case_.product_first
                                       ? ConstTensorView(part.view())
                                       : whole.view().row_range(own_.begin, own_.end);
    std::string failure;
    note(failure, same("out", serial[0][0].matrix.view(), "that of one rank alone", wanted));
    if (case_.gathered) {
      note(failure, same("gathered", serial[0][1].matrix.view(), "x",
                         x_.view().row_range(own_.begin, own_.end)));
    }
    as_one_ = comm_.world() > 1 && wanted.bytes() > 0;
    return failure;
  }

  const UlyssesCase& case_;
  Range own_;
  Guarded x_;
  Guarded bias_;
  Guarded weight_;
  Guarded part_;
  std::optional<PackedWeight> packed_;
};

}  // namespace

std::unique_ptr<Subject> subject_of(const UlyssesCase& one, Communicator& comm) {
  return std::make_unique<UlyssesSubject>(one, comm);
}

}  // namespace plait::verify
