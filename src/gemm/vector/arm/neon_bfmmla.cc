// Compiled with -march=armv8.2-a+bf16.
//
// BFMMLA multiplies two rows of X by two columns of the weight, four k at a time. It adds the
// products of the first two k, adds that to the sum, and then does so with the other two. Each
// addition is rounded to odd: a result that is not exact gets the last bit 1. Denormals count as 0.
// No other kernel has these bits.
#include "gemm/vector/arm/registers.h"
#include "gemm/vector/arm/sets.h"
#include "gemm/vector/rows.h"

namespace plait::gemm::vector {
namespace {

struct NeonBfmmla : NeonRegisters {
  static constexpr int kWordK = 2;
  // Six rows' sums take 24 registers of 2 by 2, and X and two columns 5 more.
  static constexpr int vectors(int /*rows*/) { return 4; }

  // The last one of an odd number of rows is multiplied twice.
  template <int Rows>
  static void multiply_block(const TileCall& call, std::int64_t row, int column) {
    constexpr int kPairs = (Rows + 1) / 2;
    constexpr int kVectors = vectors(Rows);
    const std::byte* x = call.rows + row * call.row_stride;
    const auto* panel = reinterpret_cast<const float*>(call.panel) + column;
    float* to = call.sums + row * kPanelColumns + column;
    Vector sums[kPairs][2 * kVectors] = {};  // NOLINT(*-avoid-c-arrays)
    if (!call.first) load<Rows>(to, sums);
    for (std::int64_t word = 0; word < call.k / kWordK; word += 2) {
      Vector rows[kPairs];  // NOLINT(*-avoid-c-arrays)
      for (std::int64_t p = 0; p < kPairs; ++p)
        rows[p] = two(x + 2 * p * call.row_stride, x + second<Rows>(p) * call.row_stride, word);
      const float* words = panel + word * kPanelColumns;
      for (int v = 0; v < kVectors; ++v) {
        const Vector even = vld1q_f32(words + v * kLanes);
        const Vector odd = vld1q_f32(words + kPanelColumns + v * kLanes);
        for (int p = 0; p < kPairs; ++p) {
          sums[p][2 * v] = multiply_add(rows[p], vzip1q_f32(even, odd), sums[p][2 * v]);
          sums[p][2 * v + 1] = multiply_add(rows[p], vzip2q_f32(even, odd), sums[p][2 * v + 1]);
        }
      }
    }
    for (int n = 0; n < call.nodes.count; ++n) {
      Vector node[kPairs][2 * kVectors];  // NOLINT(*-avoid-c-arrays)
      load<Rows>(call.nodes.of[static_cast<std::size_t>(n)] + (to - call.sums), node);
      for (int p = 0; p < kPairs; ++p) {
        for (int i = 0; i < 2 * kVectors; ++i) sums[p][i] = node[p][i] + sums[p][i];
      }
    }
    store<Rows>(sums, to);
  }

 private:
  template <int Rows>
  static constexpr std::int64_t second(std::int64_t pair) {
    return std::min<std::int64_t>(2 * pair + 1, Rows - 1);
  }

  // Four k of two rows, which may be aligned to elements only.
  static Vector two(const std::byte* row, const std::byte* next, std::int64_t word) {
    double low;   // NOLINT(*-init-variables)
    double high;  // NOLINT(*-init-variables)
    std::memcpy(&low, row + word * 4, sizeof(low));
    std::memcpy(&high, next + word * 4, sizeof(high));
    return vreinterpretq_f32_f64(vcombine_f64(vdup_n_f64(low), vdup_n_f64(high)));
  }

  static Vector multiply_add(Vector rows, Vector columns, Vector sums) {
    return vbfmmlaq_f32(sums, vreinterpretq_bf16_f32(rows), vreinterpretq_bf16_f32(columns));
  }

  // The halves of two vectors beside each other: rows of sums become squares, and squares rows.
  static Vector low_halves(Vector a, Vector b) {
    return vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
  }
  static Vector high_halves(Vector a, Vector b) {
    return vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
  }

  template <int Rows, int Pairs, int Squares>
  static void load(const float* from, Vector (&sums)[Pairs][Squares]) {
    for (std::int64_t p = 0; p < Pairs; ++p) {
      for (int v = 0; v < Squares / 2; ++v) {
        const Vector a = vld1q_f32(from + 2 * p * kPanelColumns + v * kLanes);
        const Vector b = vld1q_f32(from + second<Rows>(p) * kPanelColumns + v * kLanes);
        sums[p][2 * v] = low_halves(a, b);
        sums[p][2 * v + 1] = high_halves(a, b);
      }
    }
  }

  template <int Rows, int Pairs, int Squares>
  static void store(const Vector (&sums)[Pairs][Squares], float* to) {
    for (std::int64_t p = 0; p < Pairs; ++p) {
      for (int v = 0; v < Squares / 2; ++v) {
        const Vector a = low_halves(sums[p][2 * v], sums[p][2 * v + 1]);
        const Vector b = high_halves(sums[p][2 * v], sums[p][2 * v + 1]);
        vst1q_f32(to + 2 * p * kPanelColumns + v * kLanes, a);
        if (2 * p + 1 < Rows) vst1q_f32(to + second<Rows>(p) * kPanelColumns + v * kLanes, b);
      }
    }
  }
};

}  // namespace

void multiply_neon_bfmmla(const TileCall& call) { multiply<NeonBfmmla>(call); }

}  // namespace plait::gemm::vector
