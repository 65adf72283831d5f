// Quantised weights by the panel, and how k is cut for them.
#pragma once

#include "gemm/depth.h"
#include "gemm/panels.h"
#include "plait/gemm.h"
#include "plait/quantized.h"

namespace plait::gemm {

Storage storage_of(const QuantScheme& scheme);

// If scales are per group, a sum is cut at the end of each group.
Depth depth_of(const QuantScheme& scheme, std::int64_t k);
Depth depth_of(const GemmDesc& desc);

// PackedWeight::bytes() of the weight that the product is made for.
std::size_t packed_bytes(const GemmDesc& desc);

// Writes the part, which may begin at any k, padded with values of 0.
void pack_panel(const QuantizedWeight& weight, const PanelPart& part, std::byte* to);

}  // namespace plait::gemm
