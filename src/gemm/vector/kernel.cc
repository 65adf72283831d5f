#include <algorithm>

#include "base/check.h"
#include "gemm/few_rows.h"
#include "gemm/second_cache.h"
#include "gemm/vector/factory.h"
#include "gemm/vector/rows.h"
#include "gemm/vector/sets.h"

namespace plait::gemm::vector {
namespace {

class VectorKernel final : public TileKernel {
 public:
  explicit VectorKernel(const Set& set) : set_(set) {}

  const char* name() const override { return set_.name; }
  Dtype operand() const override { return Dtype::f32; }
  RowForm row_form() const override { return RowForm::plain; }
  int max_rows() const override { return kMaxRows; }

  // 256 k of a panel, 64 KiB, are too long for the first cache and are read from the second, ahead
  // of their use; the sums are read and written half as often as with 128. Four panels are enough
  // for the rows of X to be read seldom, and leave the cache to the sums of more rows.
  Blocking blocking() const override {
    return fill_second_cache({.rows = kMaxRows, .panels = 4, .k = 256, .few = 4}, Dtype::f32);
  }
  void multiply(const TileCall& call) const override { set_.multiply(call); }
  FewRows few_rows(int bits) const override {
    return set_.fused ? few_rows_in_sequence(bits) : FewRows{};
  }

 private:
  Set set_;
};

}  // namespace

const char* refusal(Dtype operand) {
  return operand == Dtype::f32 ? nullptr : "the vector kernel multiplies f32 only";
}

std::unique_ptr<TileKernel> create(const Set& set) { return std::make_unique<VectorKernel>(set); }

std::unique_ptr<TileKernel> create(Dtype operand) {
  if (const char* reason = refusal(operand)) base::fail(Code::invalid_argument, reason);
  const std::span<const Set> all = sets();
  return create(*std::find_if(all.begin(), all.end(), [](const Set& set) { return set.usable(); }));
}

}  // namespace plait::gemm::vector
