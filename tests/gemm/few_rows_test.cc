// Few rows by a stored panel (FewRows in src/gemm/kernel.h): the bits of the same kernel given the
// expanded panel.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cstring>
#include <limits>
#include <random>
#include <tuple>

#include "base/sanitized.h"
#include "gemm/depth.h"
#include "gemm/kernels.h"
#include "gemm/loops.h"
#include "gemm/panels.h"

namespace plait::gemm {
namespace {

// The numbers in a row of X.
enum class Numbers : std::uint8_t { usual, extreme };

class FewRowsOf : public testing::TestWithParam<std::tuple<Maker, Storage>> {
 protected:
  void SetUp() override {
    const Maker& maker = std::get<0>(GetParam());
    if (const char* reason = maker.refusal()) GTEST_SKIP() << reason;
    kernel_ = maker.create();
    few_ = kernel_->few_rows(storage());
    if (few_.max_rows == 0) GTEST_SKIP() << maker.name << " expands the panel for few rows too";
    kernel_->begin();
  }
  void TearDown() override {
    if (kernel_) kernel_->end();
  }

  static Storage storage() { return std::get<1>(GetParam()); }
  static int bits() { return static_cast<int>(bits_of(storage())); }
  static bool is_quantised() { return bits() <= 8; }
  static int rounds() {
    const int all = is_quantised() ? 600 : 100;  // numbers take longer to draw
    return kIsSlow ? all / 10 : all;
  }
  std::int64_t operand_bytes() const {
    return static_cast<std::int64_t>(size_of(kernel_->operand()));
  }

  std::int64_t below(std::int64_t n) {
    return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random_);
  }

  float number(Numbers kind) {
    const float some = std::uniform_real_distribution<float>(-1, 1)(random_);
    if (kind == Numbers::usual) return std::ldexp(some, static_cast<int>(below(13)) - 6);
    switch (below(40)) {
      case 0:
        return std::ldexp(some, 126);  // its sums overflow
      case 1:
        return std::numeric_limits<float>::infinity() * (some < 0 ? -1.0F : 1.0F);
      case 2:
        return std::numeric_limits<float>::quiet_NaN();
      case 3:
        return some < 0 ? -0.0F : 0.0F;
      default:
        // Around the smallest normal number: denormal operands, products and sums.
        return std::ldexp(some, -120 - static_cast<int>(below(13)));
    }
  }

  // A random problem: what both ways to multiply are given.
  struct Problem {
    int rows = 1;
    std::int64_t groups = 1;
    std::int64_t k = kKStep;  // of a group
    bool first = true;
    bool has_one_offset = false;  // of a column, for all groups
    std::unique_ptr<Fenced> x = {};
    std::unique_ptr<Fenced> panel = {};
    std::unique_ptr<Fenced> operand = {};
    std::vector<std::int8_t> offsets = {};
    std::vector<float> before = {};
  };

  Problem problem(Numbers kind) {
    const std::int64_t most = below(3) == 0 ? 1 : few_.max_rows;  // a row alone is often special
    return filled({.rows = 1 + static_cast<int>(below(most)),
                   .groups = 1 + below(2) * below(4),
                   .k = kKStep * (1 + below(9)),
                   .first = below(2) == 0},
                  kind);
  }
  // Groups are leaves of one sum: a power of two of them, with one column's offset for all.
  Problem leaves(Numbers kind) {
    const std::int64_t most = below(3) == 0 ? 1 : few_.max_rows;
    return filled({.rows = 1 + static_cast<int>(below(most)),
                   .groups = std::int64_t{2} << below(4),
                   .k = kKStep * (1 + below(3)),
                   .has_one_offset = true},
                  kind);
  }

  Problem filled(Problem p, Numbers kind) {
    const std::int64_t all_k = p.k * p.groups;
    p.x = std::make_unique<Fenced>(static_cast<std::size_t>(x_bytes(p)));
    std::memset(p.x->data(), 0xff, static_cast<std::size_t>(x_bytes(p)));
    for (std::int64_t row = 0; row < p.rows; ++row) {
      for (std::int64_t k = 0; k < all_k; ++k) {
        const float value = number(kind);
        convert(&value, Dtype::f32, p.x->data() + place(p, row, k), kernel_->operand(), 1);
      }
    }
    p.panel = std::make_unique<Fenced>(panel_bytes(storage(), all_k));
    fill(*p.panel, all_k, kind);
    if (is_quantised() && below(2) == 0) {
      const std::int64_t all = (p.has_one_offset ? 1 : p.groups) * kPanelColumns;
      for (std::int64_t j = 0; j < all; ++j)
        p.offsets.push_back(static_cast<std::int8_t>(below(1 << bits()) - (1 << (bits() - 1))));
    }
    p.operand =
        std::make_unique<Fenced>(static_cast<std::size_t>(p.groups * operand_bytes_of_group(p)));
    for (std::int64_t g = 0; g < p.groups; ++g) {
      expand(storage(), p.panel->data() + panel_bytes(storage(), g * p.k), p.k, offsets(p, g),
             kernel_->operand(), p.operand->data() + g * operand_bytes_of_group(p));
    }
    for (std::int64_t i = 0; i < p.groups * p.rows * kPanelColumns; ++i)
      p.before.push_back(number(kind));
    return p;
  }

  // Panels of 16 bits hold what rows hold, and others every value that there is.
  void fill(const Fenced& panel, std::int64_t k, Numbers kind) {
    const std::size_t bytes = panel_bytes(storage(), k);
    for (std::size_t i = 0; is_quantised() && i < bytes; ++i)
      panel.data()[i] = static_cast<std::byte>(below(256));
    const Dtype dtype = storage() == Storage::bf16 ? Dtype::bf16 : Dtype::f16;
    for (std::size_t i = 0; !is_quantised() && i < bytes; i += 2) {
      const float value = number(kind);
      convert(&value, Dtype::f32, panel.data() + i, dtype, 1);
    }
  }

  static const std::int8_t* offsets(const Problem& p, std::int64_t group) {
    if (p.offsets.empty()) return nullptr;
    return p.offsets.data() + (p.has_one_offset ? 0 : group * kPanelColumns);
  }
  std::int64_t operand_bytes_of_group(const Problem& p) const {
    return p.k * kPanelColumns * operand_bytes();
  }

  bool plain() const { return kernel_->row_form() == RowForm::plain; }
  std::int64_t row_stride(const Problem& p) const {
    return plain() ? (p.groups * p.k + 3) * operand_bytes() : kKStep * operand_bytes();
  }
  std::int64_t step_stride() const { return kKStep * operand_bytes() * (plain() ? 1 : 16); }
  std::int64_t place(const Problem& p, std::int64_t row, std::int64_t k) const {
    return row * row_stride(p) + k / kKStep * step_stride() + k % kKStep * operand_bytes();
  }
  std::int64_t x_bytes(const Problem& p) const {
    return place(p, p.rows - 1, p.groups * p.k - 1) + operand_bytes();
  }

  // A row of x that is 1 at `k` alone, by a panel whose columns hold `lowest` and the values that
  // follow, one each.
  Problem every_value(std::int64_t k, int lowest, int offset) const {
    Problem p;
    p.x = std::make_unique<Fenced>(static_cast<std::size_t>(x_bytes(p)));
    const float one = 1;
    convert(&one, Dtype::f32, p.x->data() + place(p, 0, k), kernel_->operand(), 1);
    p.panel = std::make_unique<Fenced>(panel_bytes(storage(), p.k));
    for (std::size_t i = 0; i < panel_bytes(storage(), p.k); ++i) {
      const auto column = static_cast<int>(bits() == 8 ? i / 2 : i) % kPanelColumns;
      const int value = lowest + column % (1 << bits());
      const int both = bits() == 8 ? value : (value & 15) | (value & 15) << 4;
      p.panel->data()[i] = static_cast<std::byte>(both);
    }
    p.offsets.assign(kPanelColumns, static_cast<std::int8_t>(offset));
    p.before.assign(kPanelColumns, 0);
    return p;
  }

  // The sums, in memory that ends where they do.
  std::vector<float> expanded(const Problem& p) const {
    const Fenced sums(p.before.size() * sizeof(float));
    std::memcpy(sums.data(), p.before.data(), p.before.size() * sizeof(float));
    for (std::int64_t g = 0; g < p.groups; ++g) {
      kernel_->multiply({.rows = p.x->data() + place(p, 0, g * p.k),
                         .row_stride = plain() ? row_stride(p) : 0,
                         .panel = p.operand->data() + g * operand_bytes_of_group(p),
                         .k = p.k,
                         .sums = reinterpret_cast<float*>(sums.data()) + g * p.rows * kPanelColumns,
                         .row_count = p.rows,
                         .first = p.first});
    }
    return values(sums, p.before.size());
  }
  std::vector<float> stored(const Problem& p) const {
    const Fenced sums(p.before.size() * sizeof(float));
    std::memcpy(sums.data(), p.before.data(), p.before.size() * sizeof(float));
    few_.multiply({.rows = p.x->data(),
                   .row_stride = row_stride(p),
                   .step_stride = step_stride(),
                   .panel = reinterpret_cast<const std::int8_t*>(p.panel->data()),
                   .offsets = offsets(p, 0),
                   .k = p.k,
                   .sums = reinterpret_cast<float*>(sums.data()),
                   .row_count = p.rows,
                   .first = p.first,
                   .groups = static_cast<int>(p.groups)});
    return values(sums, p.before.size());
  }

  // Groups as leaves of one panel, which have the offsets of the first of them: made by the pass.
  std::vector<float> added_by_the_pass(const Problem& p, const std::vector<float>& scales) const {
    const std::vector<float> sums = expanded(p);
    std::vector<Piece> pieces;
    pieces.reserve(static_cast<std::size_t>(p.groups));
    for (std::int64_t leaf = 0; leaf < p.groups; ++leaf)
      pieces.push_back({.group = 0,
                        .begin = leaf * p.k,
                        .length = p.k,
                        .padded_begin = leaf * p.k,
                        .starts = true,
                        .ends = true,
                        .leaf = leaf,
                        .ends_leaf = true});
    const std::int64_t each = p.rows * std::int64_t{kPanelColumns};
    std::vector<float> slots(static_cast<std::size_t>(5 * each));
    portable_loops().add_to_leaves({.pieces = pieces,
                                    .sums = sums.data(),
                                    .scales = scales.empty() ? nullptr : scales.data(),
                                    .scales_step = 0,
                                    .add_up = false,
                                    .begins_leaf = true},
                                   p.rows, {slots.data(), each});
    const auto whole = slots.begin() + Leaves::slot_of(p.groups - 1) * each;
    return {whole, whole + each};
  }

  // Made by the kernel, in calls of `at_once` leaves.
  std::vector<float> added_by_the_kernel(const Problem& p, const std::vector<float>& scales,
                                         std::int64_t at_once) const {
    const std::int64_t each = p.rows * std::int64_t{kPanelColumns};
    const int last = Leaves::slot_of(p.groups - 1);
    const std::int64_t stride = each + kPanelColumns;  // as far apart as another job has them
    const Fenced slots(static_cast<std::size_t>(last * stride + each) * sizeof(float));
    std::memset(slots.data(), 0xff, static_cast<std::size_t>(last * stride + each) * sizeof(float));
    for (std::int64_t leaf = 0; leaf < p.groups; leaf += at_once) {
      few_.multiply({.rows = p.x->data() + place(p, 0, leaf * p.k),
                     .row_stride = row_stride(p),
                     .step_stride = step_stride(),
                     .panel = reinterpret_cast<const std::int8_t*>(p.panel->data()) +
                              panel_bytes(storage(), leaf * p.k),
                     .offsets = offsets(p, 0),
                     .k = p.k,
                     .sums = reinterpret_cast<float*>(slots.data()),
                     .row_count = p.rows,
                     .first = true,
                     .groups = static_cast<int>(std::min(at_once, p.groups - leaf)),
                     .offset_step = 0,
                     .leaves = p.groups,
                     .leaf = leaf,
                     .slot_stride = stride,
                     .scales = scales.empty() ? nullptr : scales.data()});
    }
    const auto* whole = reinterpret_cast<const float*>(slots.data()) + last * stride;
    return {whole, whole + each};
  }
  static std::vector<float> values(const Fenced& sums, std::size_t n) {
    const auto* first = reinterpret_cast<const float*>(sums.data());
    return {first, first + n};
  }

  std::mt19937 random_{5};
  std::unique_ptr<TileKernel> kernel_;
  FewRows few_;
};

class FewQuantisedRowsOf : public FewRowsOf {};

TEST_P(FewRowsOf, HaveTheBitsOfTheExpandedPanel) {
  for (int round = 0; round < rounds(); ++round) {
    const Problem p = problem(Numbers::usual);
    const std::vector<float> want = expanded(p);
    const std::vector<float> got = stored(p);
    ASSERT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0)
        << p.rows << " rows, " << p.groups << " groups of k " << p.k << " first " << p.first
        << " offsets " << !p.offsets.empty();
  }
}

// However many leaves a call has.
TEST_P(FewRowsOf, MakeTheLeavesThatThePassMakes) {
  if (!few_.adds_leaves) GTEST_SKIP() << "has no leaves of its own";
  for (int round = 0; round < rounds(); ++round) {
    const Problem p = leaves(round % 4 == 0 ? Numbers::extreme : Numbers::usual);
    std::vector<float> scales(below(3) == 0 ? 0 : kPanelColumns);
    for (float& scale : scales) scale = number(Numbers::usual);
    const std::vector<float> want = added_by_the_pass(p, scales);
    const std::int64_t at_once = 1 + below(p.groups);
    const std::vector<float> got = added_by_the_kernel(p, scales, at_once);
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (std::isnan(want[i]) && std::isnan(got[i])) continue;  // Loops::finish makes them alike
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(want[i]))
          << p.rows << " rows, " << p.groups << " leaves of k " << p.k << ", " << at_once
          << " at once, element " << i << ": " << got[i] << ", not " << want[i];
    }
  }
}

TEST_P(FewQuantisedRowsOf, FindEveryValueWithEveryOffset) {
  const int half = 1 << (bits() - 1);
  for (int lowest = -half; lowest < half; lowest += kPanelColumns) {
    for (int offset = -half; offset < half; ++offset) {
      for (const std::int64_t k : {0, 1}) {
        Problem p = every_value(k, lowest, offset);
        if (offset == 0) p.offsets.clear();
        const std::vector<float> got = stored(p);
        for (int j = 0; j < kPanelColumns; ++j) {
          const int value = lowest + j % (2 * half);
          ASSERT_EQ(got[static_cast<std::size_t>(j)], static_cast<float>(value + offset))
              << "column " << j << ", k " << k << ": " << value << " + " << offset;
        }
      }
    }
  }
}

TEST_P(FewRowsOf, TreatDenormalsInfinitiesAndNotANumberAlike) {
  std::int64_t numbers = 0;
  for (int round = 0; round < rounds(); ++round) {
    const Problem p = problem(Numbers::extreme);
    const std::vector<float> want = expanded(p);
    const std::vector<float> got = stored(p);
    for (std::size_t i = 0; i < want.size(); ++i) {
      numbers += std::isnan(want[i]) ? 0 : 1;
      if (std::isnan(want[i]) && std::isnan(got[i])) continue;  // Loops::finish makes them alike
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(want[i]))
          << p.rows << " rows, k " << p.k << " element " << i << ": " << got[i] << ", not "
          << want[i];
    }
  }
  EXPECT_GT(numbers, std::min(30, rounds() / 2));
}

TEST_P(FewRowsOf, LeaveTheThreadsDenormalsAndRoundingAsTheyAre) {
  (void)stored(problem(Numbers::usual));
  const volatile float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_GT(tiny * 2, tiny);
  EXPECT_EQ(std::fegetround(), FE_TONEAREST);
}

const char* name(Storage storage) {
  switch (storage) {
    case Storage::f32:
      return "f32";
    case Storage::bf16:
      return "bf16";
    case Storage::f16:
      return "f16";
    case Storage::s8:
      return "s8";
    case Storage::s4:
      break;
  }
  return "s4";
}

using Case = std::tuple<Maker, Storage>;

std::vector<Case> cases(std::initializer_list<Storage> storages, Dtype operand) {
  std::vector<Case> all;
  for (const Maker& maker : kernels()) {
    for (const Storage storage : storages) {
      if (maker.operand == operand) all.emplace_back(maker, storage);
    }
  }
  return all;
}

std::string name_of(const testing::TestParamInfo<Case>& one) {
  return std::get<0>(one.param).name + "_" + name(std::get<1>(one.param));
}

constexpr auto kQuantised = {Storage::s8, Storage::s4};

INSTANTIATE_TEST_SUITE_P(
    F32, FewRowsOf,
    testing::ValuesIn(cases({Storage::bf16, Storage::f16, Storage::s8, Storage::s4}, Dtype::f32)),
    name_of);
INSTANTIATE_TEST_SUITE_P(Bf16, FewRowsOf, testing::ValuesIn(cases(kQuantised, Dtype::bf16)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(F32, FewQuantisedRowsOf, testing::ValuesIn(cases(kQuantised, Dtype::f32)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Bf16, FewQuantisedRowsOf,
                         testing::ValuesIn(cases(kQuantised, Dtype::bf16)), name_of);

}  // namespace
}  // namespace plait::gemm
