// memcpy between two buffers that only this rank touches: what the core does with bytes that it
// need not fetch from another. Small buffers stay in its cache; it is the same memory at every
// call.
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
    asm volatile("" : : "r"(to_.data()) : "memory");  // somebody may read it
  }

 private:
  std::vector<std::byte> from_;
  std::vector<std::byte> to_;
};

}  // namespace plait::bench
