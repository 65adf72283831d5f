#include "plait/packed_weight.h"

#include <cstring>

#include "base/check.h"
#include "gemm/depth.h"
#include "gemm/panels.h"
#include "gemm/parallel.h"
#include "gemm/quant_panels.h"
#include "tensor/validate.h"

namespace plait {
namespace {

// k rows of a panel at a time: a few pages of each of the weight's rows, so that what is read in
// pieces of a line stays in the cache until all of it has been used.
constexpr std::int64_t kDepthAtOnce = 512;

Buffer room_for_panels(std::int64_t n, std::size_t panel_bytes) {
  return Buffer(static_cast<std::size_t>(gemm::panels_of(n)) * panel_bytes, {.huge_pages = true});
}

// [groups, n] with zeros up to whole panels.
Buffer padded_columns(const ConstTensorView& view) {
  const std::size_t row_bytes = static_cast<std::size_t>(gemm::panels_of(view.cols)) *
                                gemm::kPanelColumns * size_of(view.dtype);
  Buffer padded(static_cast<std::size_t>(view.rows) * row_bytes);
  if (padded.bytes() > 0) std::memset(padded.data(), 0, padded.bytes());
  for (std::int64_t g = 0; g < view.rows && view.cols > 0; ++g) {
    std::memcpy(padded.data() + static_cast<std::size_t>(g) * row_bytes, view.row(g),
                view.row_bytes());
  }
  return padded;
}

}  // namespace

PackedWeight::PackedWeight(const WeightView& weight, int threads)
    : dtype_(weight.view.dtype), n_(weight.n()), k_(weight.k()) {
  tensor::validate_on_cpu(weight.view, "packed weight: weight");
  PLAIT_CHECK(dtype_ != Dtype::s8, "packed weight: weight is s8 ", weight.view.rows, " x ",
              weight.view.cols, ", which needs scales: QuantizedWeight::from_parts() takes both");
  const gemm::Storage storage = gemm::storage_of(dtype_);
  panel_bytes_ = gemm::panel_bytes(storage, gemm::Depth{.k = k_}.padded());
  panels_ = room_for_panels(n_, panel_bytes_);
  gemm::parallel_for(gemm::panels_of(n_), threads, [&](std::int64_t p) {
    std::byte* to = panels_.data() + static_cast<std::size_t>(p) * panel_bytes_;
    for (std::int64_t k = 0; k < k_; k += kDepthAtOnce) {
      const gemm::PanelPart part = {
          .panel = p, .begin = k, .length = std::min(kDepthAtOnce, k_ - k)};
      gemm::pack_panel(weight, part, to + gemm::panel_bytes(storage, k));
    }
  });
}

PackedWeight::PackedWeight(const QuantizedWeight& weight, int threads)
    : dtype_(Dtype::s8), scheme_(weight.scheme()), n_(weight.n()), k_(weight.k()) {
  const gemm::Storage storage = gemm::storage_of(*scheme_);
  const gemm::Depth depth = gemm::depth_of(*scheme_, k_);
  panel_bytes_ = gemm::panel_bytes(storage, depth.padded());
  panels_ = room_for_panels(n_, panel_bytes_);
  gemm::parallel_for(gemm::panels_of(n_), threads, [&](std::int64_t p) {
    std::byte* to = panels_.data() + static_cast<std::size_t>(p) * panel_bytes_;
    for (std::int64_t g = 0; g < depth.groups(); ++g) {
      const gemm::PanelPart part = {.panel = p, .begin = depth.begin(g), .length = depth.length(g)};
      gemm::pack_panel(weight, part, to + gemm::panel_bytes(storage, depth.padded_begin(g)));
    }
  });
  scales_ = padded_columns(weight.scales());
  if (scheme_->offsets) offsets_ = padded_columns(weight.offsets());
}

const std::byte* PackedWeight::panel(std::int64_t p) const {
  return panels_.data() + static_cast<std::size_t>(p) * panel_bytes_;
}

const float* PackedWeight::scales(std::int64_t g, std::int64_t p) const {
  return reinterpret_cast<const float*>(scales_.data()) +
         (g * gemm::panels_of(n_) + p) * gemm::kPanelColumns;
}

const std::int8_t* PackedWeight::offsets(std::int64_t g, std::int64_t p) const {
  if (!scheme_ || !scheme_->offsets) return nullptr;
  return reinterpret_cast<const std::int8_t*>(offsets_.data()) +
         (g * gemm::panels_of(n_) + p) * gemm::kPanelColumns;
}

}  // namespace plait
