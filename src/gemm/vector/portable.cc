// Four elements at a time, which every processor that runs plait can do.
//
// Compiled so that a product and its sum are one instruction where the processor is sure to have
// it: the bits are then those of the other sets. x86 before 2013 has none, and std::fma is a
// function call there for each of the products, fifty times slower; so the product is rounded.
#include "gemm/vector/rows.h"
#include "gemm/vector/sets.h"
#include "gemm/vector/turn_four.h"
#include "gemm/vector/turned.h"

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

  static constexpr int groups(int rows, int /*parts*/) { return rows <= 2 ? 2 : 1; }
  static constexpr int vectors_of_step(int rows) { return rows <= 2 ? 4 : 1; }
  static void turn(const FourthRows& rows, Vector (&to)[kLanes]) { turn_four(rows, to); }
};

}  // namespace

void multiply_portable(const TileCall& call) { multiply<Portable>(call); }
PlainRows plain_rows_portable(Storage storage) { return plain_rows<Portable>(storage); }

}  // namespace plait::gemm::vector
