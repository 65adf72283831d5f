#include "gemm/rows.h"

#include <gtest/gtest.h>

#include <cstring>

#include "gemm/matrix.h"

namespace plait::gemm {
namespace {

// Reads rows in any form, and multiplies nothing.
class Reader : public TileKernel {
 public:
  Reader(Dtype operand, RowForm form) : operand_(operand), form_(form) {}

  const char* name() const override { return "reader"; }
  Dtype operand() const override { return operand_; }
  RowForm row_form() const override { return form_; }
  int max_rows() const override { return kRowGroup; }
  Blocking blocking() const override { return {.rows = 16, .panels = 1, .k = kKStep, .few = 1}; }
  void multiply(const TileCall& /*call*/) const override {}

 private:
  Dtype operand_;
  RowForm form_;
};

// Element k of row `row` of what was packed; k is counted with the padding.
float packed_at(const Rows& rows, const TileKernel& kernel, std::int64_t row, std::int64_t k) {
  const auto bytes = static_cast<std::int64_t>(size_of(kernel.operand()));
  const std::int64_t step = k / kKStep * kKStep;
  const bool tiles = kernel.row_form() == RowForm::tiles;
  const std::byte* place =
      tiles ? rows.at(kernel, row / kRowGroup * kRowGroup, step) + row % kRowGroup * kKStep * bytes
            : rows.at(kernel, row, step);
  float value = -1;
  convert(place + (k - step) * bytes, kernel.operand(), &value, Dtype::f32, 1);
  return value;
}

struct Form {
  Dtype x;
  Dtype operand;
  RowForm form;
};

constexpr Form kForms[] = {
    // NOLINT(*-avoid-c-arrays)
    {Dtype::f32, Dtype::f32, RowForm::plain},   {Dtype::bf16, Dtype::f32, RowForm::plain},
    {Dtype::f16, Dtype::f32, RowForm::plain},   {Dtype::bf16, Dtype::bf16, RowForm::plain},
    {Dtype::bf16, Dtype::bf16, RowForm::tiles},
};

// Rows 3 to 40 of 45, so that neither the first nor the last group is whole; k = 75 in groups of 33
// is 33 + 33 + 9, padded to 64 + 64 + 32.
TEST(Rows, HoldTheElementsAndZerosBehindEveryGroupOfK) {
  constexpr std::int64_t kM = 45;
  constexpr std::int64_t kK = 75;
  constexpr Range kRows = {3, 40};
  for (const Form& form : kForms) {
    const Reader kernel(form.operand, form.form);
    for (const bool transposed : {false, true}) {
      const Matrix x(form.x, transposed ? kK : kM, transposed ? kM : kK, 5);
      for (const Depth& depth : {Depth{.k = kK}, Depth{.k = kK, .group = 33}}) {
        for (const int threads : {1, 2}) {
          const Buffer memory(packed_rows_bytes(kRows.end - kRows.begin, depth, kernel));
          std::memset(memory.data(), 0xff, memory.bytes());
          const Rows rows = pack_rows({.view = x.view, .transposed = transposed}, kRows, depth,
                                      kernel, {.to = memory.data(), .threads = threads});
          for (std::int64_t i = 0; i < kRows.end - kRows.begin; ++i) {
            for (std::int64_t g = 0; g < depth.groups(); ++g) {
              for (std::int64_t k = 0; k < depth.padded_length(g); ++k) {
                const std::int64_t row = kRows.begin + i;
                const std::int64_t from = depth.begin(g) + k;
                const double want = k >= depth.length(g) ? 0
                                    : transposed         ? at(x.view, from, row)
                                                         : at(x.view, row, from);
                ASSERT_EQ(packed_at(rows, kernel, i, depth.padded_begin(g) + k), want)
                    << name(form.x) << " as " << name(form.operand) << ", row " << row << ", k "
                    << from << (transposed ? ", transposed" : "");
              }
            }
          }
        }
      }
    }
  }
}

TEST(Rows, AreReadInPlaceOnlyWhereTheyAreWhatTheKernelReads) {
  const Matrix x(Dtype::f32, 4, 64);
  const Reader plain(Dtype::f32, RowForm::plain);
  const Reader tiles(Dtype::f32, RowForm::tiles);
  const Reader narrow(Dtype::bf16, RowForm::plain);
  const Depth depth = {.k = 64};
  EXPECT_TRUE(can_read_in_place({x.view}, depth, plain));
  EXPECT_TRUE(can_read_in_place({x.view}, {.k = 64, .group = 32}, plain));
  EXPECT_FALSE(can_read_in_place({x.view}, depth, tiles));
  EXPECT_FALSE(can_read_in_place({x.view}, depth, narrow));
  const Matrix turned(Dtype::f32, 64, 64);
  EXPECT_FALSE(can_read_in_place({.view = turned.view, .transposed = true}, depth, plain));
  EXPECT_FALSE(can_read_in_place({x.view}, {.k = 64, .group = 20}, plain));  // there is padding
  EXPECT_FALSE(can_read_in_place({x.view.column_range(0, 63)}, {.k = 63}, plain));
  const Rows rows = in_place({x.view});
  EXPECT_EQ(rows.at(plain, 2, 32),
            static_cast<const std::byte*>(x.view.row(2)) + 32 * sizeof(float));
}

TEST(Rows, ServeKernelsOfTheSameFormAlone) {
  const Reader one(Dtype::bf16, RowForm::tiles);
  const Reader same(Dtype::bf16, RowForm::tiles);
  const Reader plain(Dtype::bf16, RowForm::plain);
  const Reader wide(Dtype::f32, RowForm::tiles);
  EXPECT_EQ(form_of(&one), form_of(&same));
  EXPECT_NE(form_of(&one), form_of(&plain));
  EXPECT_NE(form_of(&one), form_of(&wide));
}

}  // namespace
}  // namespace plait::gemm
