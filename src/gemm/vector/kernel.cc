#include <algorithm>

#include "base/check.h"
#include "gemm/few_rows.h"
#include "gemm/l2_blocking.h"
#include "gemm/vector/factory.h"
#include "gemm/vector/rows.h"
#include "gemm/vector/sets.h"

namespace plait::gemm::vector {
namespace {

class VectorKernel final : public TileKernel {
 public:
  explicit VectorKernel(const Set& set) : set_(set) {}

  const char* name() const override { return set_.name; }
  Dtype operand() const override { return set_.operand; }
  RowForm row_form() const override { return RowForm::plain; }
  int max_rows() const override { return kMaxRows; }

  // 64 KiB of a panel, 256 f32, are too long for the first cache and are read from the second,
  // ahead of their use; the sums are read and written half as often as with 32 KiB. Two panels
  // halve how often the rows of X are read, and leave the cache to the sums of more rows.
  Blocking blocking() const override {
    const int k = 1024 / static_cast<int>(size_of(set_.operand));
    return fill_l2({.rows = kMaxRows, .panels = 2, .k = k, .few = 4}, set_.operand);
  }
  void multiply(const TileCall& call) const override { set_.multiply(call); }
  bool adds_nodes() const override { return true; }
  bool rounds() const override { return set_.rounds; }
  FewRows few_rows(Storage storage) const override {
    if (!set_.fused) return {};
    return set_.operand == Dtype::bf16 ? few_rows_in_pairs(storage) : few_rows_in_sequence(storage);
  }
  PlainRows plain_rows(Storage storage) const override { return set_.plain_rows(storage); }

 private:
  Set set_;
};

const Set* best_set(Dtype operand) {
  const std::span<const Set> all = sets();
  const auto best = std::find_if(all.begin(), all.end(), [&](const Set& set) {
    return set.operand == operand && base::may_use(set.needs) &&
           (set.is_faster == nullptr || set.is_faster());
  });
  return best == all.end() ? nullptr : &*best;
}

// Why not even the set that needs least may be used.
const char* refusal_of_last(Dtype operand) {
  const char* reason = "the compiler knows no vectors of bf16 for this kind of processor";
  for (const Set& set : sets()) {
    if (set.operand == operand) reason = base::refusal(set.needs);
  }
  return reason;
}

}  // namespace

const char* refusal(Dtype operand) {
  if (operand != Dtype::f32 && operand != Dtype::bf16)
    return "the vector kernel multiplies f32 and bf16";
  return best_set(operand) == nullptr ? refusal_of_last(operand) : nullptr;
}

std::unique_ptr<TileKernel> create(const Set& set) { return std::make_unique<VectorKernel>(set); }

std::unique_ptr<TileKernel> create(Dtype operand) {
  if (const char* reason = refusal(operand)) base::fail(Code::invalid_argument, reason);
  return create(*best_set(operand));
}

}  // namespace plait::gemm::vector
