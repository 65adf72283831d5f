// Memory for the panels of a view. It is as large as a weight, and many products need it, but few
// at a time. Each product therefore borrows it only while it multiplies.
#pragma once

#include <cstddef>

#include "plait/buffer.h"

namespace plait::gemm {

class PanelMemory {
 public:
  PanelMemory() = default;
  explicit PanelMemory(std::size_t bytes);
  PanelMemory(PanelMemory&&) noexcept = default;
  PanelMemory& operator=(PanelMemory&& other) noexcept;
  ~PanelMemory();

  std::byte* data() const { return buffer_.data(); }
  std::size_t bytes() const { return buffer_.bytes(); }

 private:
  void give_back() noexcept;

  Buffer buffer_;
};

}  // namespace plait::gemm
