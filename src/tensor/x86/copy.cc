// Copies cache lines as four 16-byte vectors, which every x86-64 has: memory limits the speed, not
// the width.
#include "tensor/copy.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace plait::tensor {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kAhead = 1024;

struct Line {
  __m128i parts[4];
};

Line load(const std::byte* from) {
  const auto* parts = reinterpret_cast<const __m128i*>(from);
  return {.parts = {_mm_loadu_si128(parts), _mm_loadu_si128(parts + 1), _mm_loadu_si128(parts + 2),
                    _mm_loadu_si128(parts + 3)}};
}

// Copies up to the start of a cache line of `to`, or everything. Returns the number of bytes
// copied.
std::size_t copy_head(std::byte* to, const std::byte* from, std::size_t bytes) {
  const std::size_t beyond = reinterpret_cast<std::uintptr_t>(to) % kLine;
  const std::size_t head = std::min(bytes, (kLine - beyond) % kLine);
  if (head > 0) std::memcpy(to, from, head);
  return head;
}

}  // namespace

void copy_ahead(void* to, const void* from, std::size_t bytes) {
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  std::size_t i = copy_head(out, in, bytes);
  for (; i + kLine <= bytes; i += kLine) {
    __builtin_prefetch(in + i + kAhead);
    const Line line = load(in + i);
    auto* parts = reinterpret_cast<__m128i*>(out + i);
    for (int p = 0; p < 4; ++p) _mm_store_si128(parts + p, line.parts[p]);
  }
  if (i < bytes) std::memcpy(out + i, in + i, bytes - i);
}

// It prefetches within `from` only, because the bytes after a chunk may be about to be written.
void stream_copy(void* to, const void* from, std::size_t bytes) {
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  std::size_t i = copy_head(out, in, bytes);
  for (; i + kLine <= bytes; i += kLine) {
    if (i + kAhead + kLine <= bytes) __builtin_prefetch(in + i + kAhead);
    const Line line = load(in + i);
    auto* parts = reinterpret_cast<__m128i*>(out + i);
    for (int p = 0; p < 4; ++p) _mm_stream_si128(parts + p, line.parts[p]);
  }
  if (i < bytes) std::memcpy(out + i, in + i, bytes - i);
}

void stream_fence() { _mm_sfence(); }

}  // namespace plait::tensor
