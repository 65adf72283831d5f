// The words of a plain weight, as the loops of plain.h multiply them.
//
// A Format says what becomes of a word: kParts operands, each multiplied by a value of X. One with
// kChains adds in the order of AMX.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace plait::gemm::vector {

// Whole numbers in as many lanes; gcc 12 converts no vectors whose size depends on a parameter.
template <int Lanes>
struct Integers;
template <>
struct Integers<4> {
  using Words [[gnu::vector_size(16), gnu::may_alias]] = std::uint32_t;
  using Halves [[gnu::vector_size(8), gnu::may_alias]] = std::uint16_t;
};
template <>
struct Integers<8> {
  using Words [[gnu::vector_size(32), gnu::may_alias]] = std::uint32_t;
  using Halves [[gnu::vector_size(16), gnu::may_alias]] = std::uint16_t;
};
template <>
struct Integers<16> {
  using Words [[gnu::vector_size(64), gnu::may_alias]] = std::uint32_t;
  using Halves [[gnu::vector_size(32), gnu::may_alias]] = std::uint16_t;
};

template <class Set>
struct Lanes {
  using Vector = typename Set::Vector;
  using Words = typename Integers<Set::kLanes>::Words;
  using Halves = typename Integers<Set::kLanes>::Halves;

  // X and the weight may be aligned to elements only.
  [[gnu::always_inline]] static Vector broadcast(const std::byte* from) {
    float value;  // NOLINT(*-init-variables)
    std::memcpy(&value, from, sizeof(value));
    return Set::broadcast(value);
  }
  [[gnu::always_inline]] static Vector load(const std::byte* from) {
    Vector value;  // NOLINT(*-init-variables)
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  [[gnu::always_inline]] static Halves load_halves(const std::byte* from) {
    Halves value;  // NOLINT(*-init-variables)
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  [[gnu::always_inline]] static Words wide(const std::byte* from) {
    const Halves halves = load_halves(from);
    if constexpr (requires { Set::widen_halves(halves); }) return Set::widen_halves(halves);
    return __builtin_convertvector(halves, Words);
  }
  [[gnu::always_inline]] static Vector even_bf16(Vector pairs) {
    return reinterpret_cast<Vector>(reinterpret_cast<Words>(pairs) << 16);
  }
  [[gnu::always_inline]] static Vector odd_bf16(Vector pairs) {
    return reinterpret_cast<Vector>(reinterpret_cast<Words>(pairs) & 0xffff0000U);
  }
};

// Words that are operands: f32, and pairs of bf16 where an instruction multiplies pairs.
template <class Set>
struct AsIs : Lanes<Set> {
  using typename Lanes<Set>::Vector;
  using typename Lanes<Set>::Words;
  static constexpr int kWordK = Set::kWordK;
  static constexpr int kParts = 1;
  static constexpr bool kChains = false;
  static constexpr std::int64_t kXBytes = 4;  // of a word

  template <int part>
  [[gnu::always_inline]] static Vector part_of(Vector word) {
    return word;
  }
  template <int part>
  [[gnu::always_inline]] static Vector x(const std::byte* from) {
    return Lanes<Set>::broadcast(from);
  }
  // A word of each column, of rows of k.
  template <int part>
  [[gnu::always_inline]] static Vector straight(const std::byte* from, std::int64_t stride) {
    if constexpr (kWordK == 1) return Lanes<Set>::load(from);
    return reinterpret_cast<Vector>(
        static_cast<Words>(Lanes<Set>::wide(from) | Lanes<Set>::wide(from + stride) << 16));
  }
};

// bf16 by rows of f32.
template <class Set>
struct Bf16ToF32 : Lanes<Set> {
  using typename Lanes<Set>::Vector;
  using typename Lanes<Set>::Words;
  static constexpr int kWordK = 2;
  static constexpr int kParts = 2;
  static constexpr bool kChains = false;
  static constexpr std::int64_t kXBytes = 8;

  template <int part>
  [[gnu::always_inline]] static Vector part_of(Vector word) {
    return part == 0 ? Lanes<Set>::even_bf16(word) : Lanes<Set>::odd_bf16(word);
  }
  template <int part>
  [[gnu::always_inline]] static Vector x(const std::byte* from) {
    return Lanes<Set>::broadcast(from + std::ptrdiff_t{4} * part);
  }
  template <int part>
  [[gnu::always_inline]] static Vector straight(const std::byte* from, std::int64_t stride) {
    return reinterpret_cast<Vector>(
        static_cast<Words>(Lanes<Set>::wide(from + part * stride) << 16));
  }
};

// f16 by rows of f32.
template <class Set>
struct F16ToF32 : Bf16ToF32<Set> {
  using typename Lanes<Set>::Vector;
  using typename Lanes<Set>::Words;
  using typename Lanes<Set>::Halves;

  // A word whose even and odd elements were parted, in memory: an instruction widens them there.
  template <int part>
  [[gnu::always_inline]] static Vector part_of_parted(const Vector& word) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&word);
    return Set::widen_f16(
        Lanes<Set>::load_halves(bytes + part * static_cast<std::int64_t>(sizeof(Halves))));
  }
  template <int part>
  [[gnu::always_inline]] static Vector part_of(Vector word) {
    const auto pairs = reinterpret_cast<Words>(word);
    return Set::widen_f16(__builtin_convertvector(part == 0 ? pairs : pairs >> 16, Halves));
  }
  template <int part>
  [[gnu::always_inline]] static Vector straight(const std::byte* from, std::int64_t stride) {
    return Set::widen_f16(Lanes<Set>::load_halves(from + part * stride));
  }
};

// True if words of f16 are parted before they are widened.
template <class Set, class Format>
inline constexpr bool kPartsHalves = false;
template <class Set>
inline constexpr bool kPartsHalves<Set, F16ToF32<Set>> = requires { &Set::part_halves; };

// bf16 by rows of bf16 that were not widened before.
template <class Set>
struct Bf16InPairs : Bf16ToF32<Set> {
  static constexpr std::int64_t kXBytes = 4;
};

// True if the two of a word are multiplied with the bits of an instruction for pairs: between
// hold() and let_go(), and the odd one first.
template <class Set, class Format>
inline constexpr bool kHasPairs = Set::kWordK == 2 && Format::kParts == 2;

// bf16 by rows of bf16, in the order of AMX: the even and the odd k of a step in a chain each.
template <class Set>
struct Bf16InChains : Bf16ToF32<Set> {
  using typename Lanes<Set>::Vector;
  static constexpr bool kChains = true;
  static constexpr std::int64_t kXBytes = 4;

  template <int part>
  [[gnu::always_inline]] static Vector x(const std::byte* from) {
    return Bf16ToF32<Set>::template part_of<part>(Lanes<Set>::broadcast(from));
  }
};

}  // namespace plait::gemm::vector
