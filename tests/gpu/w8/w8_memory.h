// The places of a packed weight's parts in its memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/w8/w8.h"
#include "gpu/w8/w8_layout.h"

namespace plait::gpu::w8 {

// Records of all chunks, then (unless grouped) scales and offsets of pairs of rows.
struct Memory {
  std::size_t records, scales, offsets;  // bytes

  explicit Memory(const W8Weight& weight) {
    const auto number = static_cast<std::size_t>(blocks(weight.n));
    records = number * static_cast<std::size_t>(padded_chunks(weight.k, weight.group)) *
              static_cast<std::size_t>(record_bytes(weight.group));
    scales = weight.group == 0 ? number * kScaleBytes : 0;
    offsets = weight.group == 0 ? number * kRowPairs * 2 : 0;
  }

  std::size_t total() const { return records + scales + offsets; }
};

}  // namespace plait::gpu::w8
