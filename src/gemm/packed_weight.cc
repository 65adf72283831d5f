#include "plait/packed_weight.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/parallel.h"
#include "gemm/depth.h"
#include "gemm/panels.h"
#include "gemm/quant_panels.h"
#include "quant/scheme.h"
#include "tensor/validate.h"

namespace plait {
namespace {

// k rows of a panel at a time: a few pages of each of the weight's rows, so that what is read in
// pieces of a line stays in the cache until all of it has been used.
constexpr std::int64_t kDepthAtOnce = 512;

Buffer room_for_panels(std::int64_t n, std::size_t panel_bytes) {
  return Buffer(static_cast<std::size_t>(gemm::panels_of(n)) * panel_bytes, {.huge_pages = true});
}

// [groups, n] panel by panel: [panels][groups][64], with zeros behind the last column.
Buffer by_panels(const ConstTensorView& view) {
  const std::int64_t panels = gemm::panels_of(view.cols);
  const std::size_t row_bytes = gemm::kPanelColumns * size_of(view.dtype);
  Buffer ordered(static_cast<std::size_t>(panels * view.rows) * row_bytes);
  if (ordered.bytes() > 0) std::memset(ordered.data(), 0, ordered.bytes());
  for (std::int64_t g = 0; g < view.rows; ++g) {
    const auto* row = static_cast<const std::byte*>(view.row(g));
    for (std::int64_t p = 0; p < panels; ++p) {
      const std::size_t begin = static_cast<std::size_t>(p) * row_bytes;
      std::memcpy(ordered.data() + static_cast<std::size_t>(p * view.rows + g) * row_bytes,
                  row + begin, std::min(row_bytes, view.row_bytes() - begin));
    }
  }
  return ordered;
}

}  // namespace

PackedWeight::PackedWeight(const WeightView& weight, int threads)
    : dtype_(weight.view.dtype), n_(weight.n()), k_(weight.k()) {
  tensor::validate_on_cpu(weight.view, "packed weight: weight");
  quant::check_layout(weight.layout, "packed weight: the weight");
  base::check_threads(threads, "packed weight");
  PLAIT_CHECK(dtype_ != Dtype::s8, "packed weight: weight is s8 ", weight.view.rows, " x ",
              weight.view.cols, ", which needs scales: QuantizedWeight::from_parts() takes both");
  const gemm::Storage storage = gemm::storage_of(dtype_);
  panel_bytes_ = gemm::panel_bytes(storage, gemm::Depth{.k = k_}.padded());
  if (panel_bytes_ == 0) return;
  panels_ = room_for_panels(n_, panel_bytes_);
  base::parallel_for(gemm::panels_of(n_), threads, [&](std::int64_t p) {
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
  base::check_threads(threads, "packed weight");
  const gemm::Storage storage = gemm::storage_of(*scheme_);
  const gemm::Depth depth = gemm::depth_of(*scheme_, k_);
  panel_bytes_ = gemm::panel_bytes(storage, depth.padded());
  panels_ = room_for_panels(n_, panel_bytes_);
  base::parallel_for(gemm::panels_of(n_), threads, [&](std::int64_t p) {
    std::byte* to = panels_.data() + static_cast<std::size_t>(p) * panel_bytes_;
    for (std::int64_t g = 0; g < depth.groups(); ++g) {
      const gemm::PanelPart part = {.panel = p, .begin = depth.begin(g), .length = depth.length(g)};
      gemm::pack_panel(weight, part, to + gemm::panel_bytes(storage, depth.padded_begin(g)));
    }
  });
  groups_ = weight.scales().rows;
  scales_ = by_panels(weight.scales());
  if (scheme_->offsets) offsets_ = by_panels(weight.offsets());
}

const std::byte* PackedWeight::panel(std::int64_t p) const {
  return panels_.data() + static_cast<std::size_t>(p) * panel_bytes_;
}

const float* PackedWeight::scales(std::int64_t g, std::int64_t p) const {
  return reinterpret_cast<const float*>(scales_.data()) + (p * groups_ + g) * gemm::kPanelColumns;
}

const std::int8_t* PackedWeight::offsets(std::int64_t g, std::int64_t p) const {
  if (!scheme_ || !scheme_->offsets) return nullptr;
  return reinterpret_cast<const std::int8_t*>(offsets_.data()) +
         (p * groups_ + g) * gemm::kPanelColumns;
}

}  // namespace plait
