// memcpy between two buffers that only this rank touches: the rate at which the core copies bytes
// that it need not fetch from another core. Small buffers stay in its cache, since every call uses
// the same memory.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

namespace plait::bench {

class Copies {
 public:
  explicit Copies(std::size_t bytes) : from_(bytes, std::byte{1}), to_(bytes) {}

  void copy() {
    std::memcpy(to_.data(), from_.data(), from_.size());
    asm volatile("" : : "r"(to_.data()) : "memory");  // the compiler must assume that it is read
  }

 private:
  std::vector<std::byte> from_;
  std::vector<std::byte> to_;
};

}  // namespace plait::bench
