#include "gemm/workspace.h"

namespace plait::gemm {

std::byte* Workspace::at_least(Buffer& buffer, std::size_t bytes) {
  if (buffer.bytes() < bytes) buffer = Buffer(bytes, {.huge_pages = true});
  return buffer.data();
}

std::size_t Workspace::bytes() const {
  std::size_t bytes = rows.bytes() + widened.bytes() + turned.bytes() + bias.bytes();
  for (const Thread& thread : threads) {
    bytes +=
        thread.sums.bytes() + thread.parts.bytes() + thread.blocks.bytes() + thread.panels.bytes();
  }
  return bytes;
}

}  // namespace plait::gemm
