#include "experts/combine.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/parallel.h"
#include "tensor/kernels.h"

namespace plait::experts {
namespace {

// Columns whose sums stay in the innermost cache.
constexpr std::int64_t kColumns = 512;

// Rows that a thread adds up at a time.
constexpr std::int64_t kRowsEach = 8;

void combine_row(const Combine& work, std::int64_t row, const TensorView& out) {
  const std::size_t element = size_of(work.dtype);
  std::array<float, kColumns> sum;
  std::array<float, kColumns> value;
  for (std::int64_t begin = 0; begin < out.cols; begin += kColumns) {
    const auto count = static_cast<std::size_t>(std::min(kColumns, out.cols - begin));
    std::fill_n(sum.begin(), count, 0.0F);
    for (std::int64_t slot = row * work.top; slot < (row + 1) * work.top; ++slot) {
      const auto* const result =
          static_cast<const std::byte*>(work.results[static_cast<std::size_t>(slot)]);
      if (result == nullptr) continue;
      convert(result + static_cast<std::size_t>(begin) * element, work.dtype, value.data(),
              Dtype::f32, count);
      const float weight = work.weights == nullptr ? 1.0F : work.weights[slot];
      for (std::size_t i = 0; i < count; ++i) sum[i] += weight * value[i];
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
