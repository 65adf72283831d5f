// FNV-1a of 64 bits. Unlike std::hash it is equal in every build, and ranks may run different ones.
#pragma once

#include <cstdint>
#include <type_traits>

namespace plait::base {

// The values are bytes, or whole numbers, which are taken in as a whole.
template <class Values>
constexpr std::uint64_t fingerprint(const Values& values,
                                    std::uint64_t hash = 0xcbf29ce484222325ULL) {
  for (const auto value : values) {
    using Taken = std::conditional_t<sizeof(value) == 1, unsigned char, std::uint64_t>;
    hash = (hash ^ static_cast<Taken>(value)) * 0x100000001b3ULL;
  }
  return hash;
}

}  // namespace plait::base
