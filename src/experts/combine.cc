#include "experts/combine.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/parallel.h"
#include "plait/experts.h"
#include "tensor/kernels.h"

namespace plait::experts {
namespace {

// Columns whose sums stay in the innermost cache.
constexpr std::int64_t kColumns = 512;

// Rows that a thread adds up at a time.
constexpr std::int64_t kRowsEach = 8;

using Sums = std::array<float, kColumns>;

// Adds the parts of a slot's result up to the first of `values`: 0 + 1, 2 + 3, and so on. One that
// is left over goes up a level unchanged.
void add_parts(std::span<Sums> values, std::size_t count) {
  for (std::size_t step = 1; step < values.size(); step *= 2) {
    for (std::size_t at = 0; at + step < values.size(); at += 2 * step) {
      for (std::size_t i = 0; i < count; ++i) values[at][i] += values[at + step][i];
    }
  }
}

void combine_row(const Combine& work, std::int64_t row, const TensorView& out) {
  const std::size_t element = size_of(work.dtype);
  const auto parts = static_cast<std::size_t>(work.parts);
  Sums sum;
  std::array<Sums, kMostPartsOfAnExpert> values;
  for (std::int64_t begin = 0; begin < out.cols; begin += kColumns) {
    const auto count = static_cast<std::size_t>(std::min(kColumns, out.cols - begin));
    std::fill_n(sum.begin(), count, 0.0F);
    for (std::int64_t slot = row * work.top; slot < (row + 1) * work.top; ++slot) {
      const auto results = work.results.subspan(static_cast<std::size_t>(slot) * parts, parts);
      if (results.front() == nullptr) continue;
      for (std::size_t part = 0; part < parts; ++part) {
        convert(static_cast<const std::byte*>(results[part]) +
                    static_cast<std::size_t>(begin) * element,
                work.dtype, values[part].data(), Dtype::f32, count);
      }
      add_parts(std::span(values).first(parts), count);
      const float weight = work.weights == nullptr ? 1.0F : work.weights[slot];
      for (std::size_t i = 0; i < count; ++i) sum[i] += weight * values[0][i];
    }
    for (std::size_t i = 0; i < count; ++i) sum[i] = tensor::with_one_nan(sum[i]);
    convert(sum.data(), Dtype::f32, out.row_range(row, row + 1).column_range(begin, out.cols).data,
            out.dtype, count);
  }
}

}  // namespace

void combine(const Combine& work, const TensorView& out, int threads) {
  base::parallel_for((out.rows + kRowsEach - 1) / kRowsEach, threads, [&](std::int64_t block) {
    const std::int64_t end = std::min((block + 1) * kRowsEach, out.rows);
    for (std::int64_t row = block * kRowsEach; row < end; ++row) combine_row(work, row, out);
  });
}

}  // namespace plait::experts
