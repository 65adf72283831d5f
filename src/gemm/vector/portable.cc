// Four elements at a time, which every processor that runs plait can do.
//
// Compiled so that a product and its sum are one instruction where the processor is sure to have
// it (NEON): the bits are then those of the other sets. x86 before 2013 has none, and std::fma is
// a function call there for each of the products, fifty times slower; so the product is rounded.
#include <bit>

#include "gemm/vector/rows.h"
#include "gemm/vector/sets.h"
#include "tensor/kernels.h"

namespace plait::gemm::vector {
namespace {

struct Portable {
  using Vector [[gnu::vector_size(16), gnu::may_alias]] = float;
  static constexpr int kWordK = 1;
  static constexpr int kLanes = 4;
  static constexpr int kRows = 6;
  static constexpr int vectors(int rows) { return rows == 1 ? 8 : rows == 2 ? 4 : 2; }

  static Vector broadcast(float value) { return Vector{value, value, value, value}; }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return a * b + c; }

  // Where both operands of an addition are not numbers, x86 keeps the first, and which one that is
  // the compiler chooses for each number of rows anew.
  static Vector settle(Vector sum) {
    const auto is_number = sum == sum;  // NOLINT(misc-redundant-expression): false for a NaN
    return is_number ? sum : broadcast(std::bit_cast<float>(tensor::kNan));
  }
};

}  // namespace

void multiply_portable(const TileCall& call) { multiply<Portable>(call); }

}  // namespace plait::gemm::vector
