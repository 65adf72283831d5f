// Weights by the panel: 64 columns wide, k running down, padded with zeros on both sides.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gemm/depth.h"
#include "gemm/kernel.h"
#include "gemm/loops.h"
#include "gemm/storage.h"
#include "plait/weight.h"

namespace plait::gemm {

// The size of k rows of a panel.
constexpr std::size_t panel_bytes(Storage storage, std::int64_t k) {
  return static_cast<std::size_t>(k) * kPanelColumns * bits_of(storage) / 8;
}

Storage storage_of(Dtype dtype);

constexpr std::int64_t panels_of(std::int64_t n) { return ceil_div(n, kPanelColumns); }

// A part of a panel: rows [begin, begin + length) of the weight's k.
struct PanelPart {
  std::int64_t panel;
  std::int64_t begin;   // even
  std::int64_t length;  // padded to a multiple of kKStep with zeros
};

// Writes the part, in the storage that the weight's dtype has, to memory aligned to 64 bytes.
void pack_panel(const WeightView& weight, const PanelPart& part, std::byte* to,
                Stores stores = Stores::cached, const Loops& with = loops());

// Makes an operand of k rows of a stored panel. `offsets` are those of the panel's 64 columns, or
// nullptr; only s8 and s4 have any. Where storage and operand are the same there is nothing to do,
// and this must not be called.
void expand(Storage storage, const std::byte* from, std::int64_t k, const std::int8_t* offsets,
            Dtype operand, std::byte* to);

// True if a kernel can take the panel as it is stored.
bool is_operand(Storage storage, Dtype operand);

}  // namespace plait::gemm
