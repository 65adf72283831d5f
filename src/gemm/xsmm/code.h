// Memory that machine code is written into, and then run from.
#pragma once

#include <cstddef>
#include <span>

namespace plait::gemm::xsmm {

class CodeMemory {
 public:
  explicit CodeMemory(std::size_t bytes);
  ~CodeMemory();
  CodeMemory(const CodeMemory&) = delete;
  CodeMemory& operator=(const CodeMemory&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }

  // Whether this process may have any.
  static bool is_allowed();

  // Its end as a place to write to. False where this process may not have executable memory.
  [[nodiscard]] bool make_executable();

 private:
  std::span<std::byte> bytes_;
};

}  // namespace plait::gemm::xsmm
