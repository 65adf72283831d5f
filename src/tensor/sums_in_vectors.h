// Sums of vectors in the order of reduce.h, for the sets that read and write whole vectors. A file
// of each has a Set, which loads, stores and knows NaNs, and defines PLAIT_SUMS_TARGET, the
// attribute of its instructions, if not every processor of the kind has them.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>

#include "tensor/kernels.h"

#ifndef PLAIT_SUMS_TARGET
#define PLAIT_SUMS_TARGET
#endif

namespace plait::tensor {

inline constexpr std::size_t kUnroll = 4;

// Adds the vectors that `load` reads of each source. The compiler knows trees of 2, 4 and 8, and
// keeps them in registers.
template <class Load, int Count, class Vector, std::size_t Vectors>
[[PLAIT_SUMS_TARGET, gnu::always_inline]] inline void add_known(const Load& load,
                                                                Vector (&total)[Vectors],
                                                                const void* const* sources) {
  if constexpr (Count == 1) {
    load(sources[0], total);
  } else {
    Vector others[Vectors];
    add_known<Load, Count / 2>(load, total, sources);
    add_known<Load, Count / 2>(load, others, sources + Count / 2);
    for (std::size_t v = 0; v < Vectors; ++v) total[v] = total[v] + others[v];
  }
}

template <class Load, class Vector, std::size_t Vectors>
[[PLAIT_SUMS_TARGET, gnu::noinline]] void add_many(const Load& load, Vector (&total)[Vectors],
                                                   const void* const* sources, int count);

template <class Load, class Vector, std::size_t Vectors>
[[PLAIT_SUMS_TARGET, gnu::always_inline]] inline void add_up(const Load& load,
                                                             Vector (&total)[Vectors],
                                                             const void* const* sources,
                                                             int count) {
  switch (count) {
    case 1:
      return add_known<Load, 1>(load, total, sources);
    case 2:
      return add_known<Load, 2>(load, total, sources);
    case 4:
      return add_known<Load, 4>(load, total, sources);
    case 8:
      return add_known<Load, 8>(load, total, sources);
    default: {
      // A call that wrote `total` itself would keep it in memory for all counts.
      Vector sum[Vectors];
      add_many(load, sum, sources, count);
      for (std::size_t v = 0; v < Vectors; ++v) total[v] = sum[v];
    }
  }
}

template <class Load, class Vector, std::size_t Vectors>
[[PLAIT_SUMS_TARGET, gnu::noinline]] void add_many(const Load& load, Vector (&total)[Vectors],
                                                   const void* const* sources, int count) {
  const int first = first_in_tree(count);
  Vector others[Vectors];
  add_up(load, total, sources, first);
  add_up(load, others, sources + first, count - first);
  for (std::size_t v = 0; v < Vectors; ++v) total[v] = total[v] + others[v];
}

template <class Set, Element In>
struct Elements {
  std::size_t i;

  template <class Vector, std::size_t Vectors>
  [[PLAIT_SUMS_TARGET, gnu::always_inline]] void operator()(const void* source,
                                                            Vector (&to)[Vectors]) const {
    for (std::size_t v = 0; v < Vectors; ++v)
      to[v] = Set::template load<In>(source, i + v * Set::kLanes);
  }
};

// Sums a group of vectors. It reads all sources before it writes, because `out` may be one of them.
// One: there is one source, to be converted.
template <class Set, Element In, Element Out, bool One, std::size_t Vectors>
[[PLAIT_SUMS_TARGET, gnu::always_inline]] inline void sum_group(void* out,
                                                                const void* const* sources,
                                                                int count, std::size_t i) {
  typename Set::Vector total[Vectors];
  add_up(Elements<Set, In>{i}, total, sources, One ? 1 : count);
  for (std::size_t v = 0; v < Vectors; ++v)
    Set::template store<Out, One>(out, i + v * Set::kLanes,
                                  One ? total[v] : Set::with_one_nan(total[v]));
}

// Reads `count` elements, fewer than Set::kLanes, through a padded copy.
template <class Set, Element In>
struct FewElements {
  std::size_t i;
  std::size_t count;

  [[PLAIT_SUMS_TARGET, gnu::always_inline]] void operator()(const void* source,
                                                            typename Set::Vector (&to)[1]) const {
    alignas(64) std::array<std::byte, Set::kLanes * 4> padded = {};
    std::memcpy(padded.data(), static_cast<const std::byte*>(source) + i * sizeof(In),
                count * sizeof(In));
    to[0] = Set::template load<In>(padded.data(), 0);
  }
};

// Sums the last `rest` elements, fewer than Set::kLanes, through padded copies.
template <class Set, Element In, Element Out, bool One>
[[PLAIT_SUMS_TARGET]] void sum_rest(void* out, const void* const* sources, int count, std::size_t i,
                                    std::size_t rest) {
  alignas(64) std::array<std::byte, Set::kLanes * 4> padded = {};
  typename Set::Vector total[1];
  add_up(FewElements<Set, In>{i, rest}, total, sources, count);
  Set::template store<Out, One>(padded.data(), 0, One ? total[0] : Set::with_one_nan(total[0]));
  std::memcpy(static_cast<std::byte*>(out) + i * sizeof(Out), padded.data(), rest * sizeof(Out));
}

// Sums elements [i, n).
template <class Set, Element In, Element Out, bool One>
[[PLAIT_SUMS_TARGET]] void sum_from(void* out, const void* const* sources, int count, std::size_t i,
                                    std::size_t n) {
  for (; i + kUnroll * Set::kLanes <= n; i += kUnroll * Set::kLanes)
    sum_group<Set, In, Out, One, kUnroll>(out, sources, count, i);
  for (; i + Set::kLanes <= n; i += Set::kLanes)
    sum_group<Set, In, Out, One, 1>(out, sources, count, i);
  if (i < n) sum_rest<Set, In, Out, One>(out, sources, count, i, n - i);
}

// Sums elements of one dtype to another, or converts them.
template <class Set, Element In, Element Out>
void sum_whole(void* out, const void* const* sources, int count, std::size_t n) {
  if (count == 1)
    sum_from<Set, In, Out, true>(out, sources, count, 0, n);
  else
    sum_from<Set, In, Out, false>(out, sources, count, 0, n);
}

}  // namespace plait::tensor
