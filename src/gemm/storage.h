// How the elements of a weight's panels lie in memory between products.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait::gemm {

// 16-bit and smaller elements come in pairs of k: that is what dot products of bf16 take, and what
// costs the others nothing to take apart.
enum class Storage : std::uint8_t {
  f32,   // [k][64]
  bf16,  // [k / 2][64][2]
  f16,   // [k / 2][64][2]
  s8,    // [k / 2][64][2]
  s4,    // [k / 2][64], the even k in the low half of the byte
};

constexpr std::size_t bits_of(Storage storage) {
  switch (storage) {
    case Storage::f32:
      return 32;
    case Storage::bf16:
    case Storage::f16:
      return 16;
    case Storage::s8:
      return 8;
    case Storage::s4:
      break;
  }
  return 4;
}

}  // namespace plait::gemm
