#include "plait/packed_weight.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/parallel.h"
#include "gemm/depth.h"
#include "gemm/panels.h"
#include "gemm/quant_panels.h"
#include "quant/scheme.h"
#include "tensor/copy.h"
#include "tensor/validate.h"

namespace plait {
namespace {

// k rows of a panel at a time: a few pages of each of the weight's rows, so that what is read in
// pieces of a line stays in the cache until all of it has been used.
constexpr std::int64_t kDepthAtOnce = 512;

// Panels that no second cache holds are written past the caches, which takes half the time: memory
// isn't read before it is overwritten, and the weight isn't driven out of the caches.
constexpr std::size_t kStreamedBytes = 2 * 1024 * 1024;

Buffer room_for_panels(std::int64_t n, std::size_t panel_bytes) {
  return Buffer(static_cast<std::size_t>(gemm::panels_of(n)) * panel_bytes, {.huge_pages = true});
}

// Room for values of each group of k, [groups, n]: [panels][groups][64].
Buffer room_for_groups(const ConstTensorView& view) {
  const std::int64_t values = gemm::panels_of(view.cols) * view.rows * gemm::kPanelColumns;
  return Buffer(static_cast<std::size_t>(values) * size_of(view.dtype));
}

// Panel by panel, with zeros behind the last column.
void order_by_panels(const ConstTensorView& view, const Buffer& ordered) {
  const std::int64_t panels = gemm::panels_of(view.cols);
  const std::size_t row_bytes = gemm::kPanelColumns * size_of(view.dtype);
  if (ordered.bytes() > 0) std::memset(ordered.data(), 0, ordered.bytes());
  for (std::int64_t g = 0; g < view.rows; ++g) {
    const auto* row = static_cast<const std::byte*>(view.row(g));
    for (std::int64_t p = 0; p < panels; ++p) {
      const std::size_t begin = static_cast<std::size_t>(p) * row_bytes;
      std::memcpy(ordered.data() + static_cast<std::size_t>(p * view.rows + g) * row_bytes,
                  row + begin, std::min(row_bytes, view.row_bytes() - begin));
    }
  }
}

void check_weight(const WeightView& weight, int threads) {
  tensor::validate_on_cpu(weight.view, "packed weight: weight");
  quant::check_layout(weight.layout, "packed weight: the weight");
  base::check_threads(threads, "packed weight");
  PLAIT_CHECK(weight.view.dtype != Dtype::s8, "packed weight: weight is s8 ", weight.view.rows,
              " x ", weight.view.cols,
              ", which needs scales: QuantizedWeight::from_parts() takes both");
}

std::string kind_of(Dtype dtype, const std::optional<QuantScheme>& scheme) {
  return scheme ? name(*scheme) : std::string(name(dtype));
}

}  // namespace

PackedWeight::PackedWeight(const WeightView& weight, int threads)
    : dtype_(weight.view.dtype), n_(weight.n()), k_(weight.k()) {
  check_weight(weight, threads);
  panel_bytes_ = gemm::panel_bytes(gemm::storage_of(dtype_), gemm::Depth{.k = k_}.padded());
  if (panel_bytes_ == 0) return;
  panels_ = room_for_panels(n_, panel_bytes_);
  pack(weight, threads);
}

PackedWeight::PackedWeight(const QuantizedWeight& weight, int threads)
    : dtype_(Dtype::s8), scheme_(weight.scheme()), n_(weight.n()), k_(weight.k()) {
  base::check_threads(threads, "packed weight");
  groups_ = weight.scales().rows;
  panel_bytes_ =
      gemm::panel_bytes(gemm::storage_of(*scheme_), gemm::depth_of(*scheme_, k_).padded());
  panels_ = room_for_panels(n_, panel_bytes_);
  scales_ = room_for_groups(weight.scales());
  if (scheme_->offsets) offsets_ = room_for_groups(weight.offsets());
  pack(weight, threads);
}

void PackedWeight::repack(const WeightView& weight, int threads) {
  check_weight(weight, threads);
  check_same(weight.view.dtype, std::nullopt, weight.n(), weight.k());
  pack(weight, threads);
}

void PackedWeight::repack(const QuantizedWeight& weight, int threads) {
  base::check_threads(threads, "packed weight");
  check_same(Dtype::s8, weight.scheme(), weight.n(), weight.k());
  pack(weight, threads);
}

void PackedWeight::check_same(Dtype dtype, const std::optional<QuantScheme>& scheme, std::int64_t n,
                              std::int64_t k) const {
  PLAIT_CHECK(dtype == dtype_ && scheme == scheme_ && n == n_ && k == k_,
              "packed weight: repack() takes a weight of the same kind, ", kind_of(dtype_, scheme_),
              " n=", n_, " k=", k_, ", but the new one is ", kind_of(dtype, scheme), " n=", n,
              " k=", k);
  PLAIT_CHECK(panels_.bytes() == static_cast<std::size_t>(gemm::panels_of(n_)) * panel_bytes_,
              "packed weight: repack() of one that has been moved to another");
}

// Rows of the weight are read whole: where they are outputs, panel by panel, and where they are
// inputs, all panels of some k before the next.
void PackedWeight::pack(const WeightView& weight, int threads) {
  const gemm::Storage storage = gemm::storage_of(dtype_);
  const std::int64_t panels = gemm::panels_of(n_);
  const std::int64_t parts = gemm::ceil_div(k_, kDepthAtOnce);
  const auto stores =
      panels_.bytes() < kStreamedBytes ? gemm::Stores::cached : gemm::Stores::streamed;
  base::parallel_for(panels * parts, threads, [&](std::int64_t i) {
    const bool by_outputs = weight.layout == WeightLayout::out_in;
    const std::int64_t p = by_outputs ? i / parts : i % panels;
    const std::int64_t k = (by_outputs ? i % parts : i / panels) * kDepthAtOnce;
    gemm::pack_panel(
        weight, {.panel = p, .begin = k, .length = std::min(kDepthAtOnce, k_ - k)},
        panels_.data() + static_cast<std::size_t>(p) * panel_bytes_ + gemm::panel_bytes(storage, k),
        stores);
    if (stores == gemm::Stores::streamed) tensor::stream_fence();
  });
}

void PackedWeight::pack(const QuantizedWeight& weight, int threads) {
  const gemm::Storage storage = gemm::storage_of(weight.scheme());
  const gemm::Depth depth = gemm::depth_of(weight.scheme(), k_);
  base::parallel_for(gemm::panels_of(n_), threads, [&](std::int64_t p) {
    std::byte* to = panels_.data() + static_cast<std::size_t>(p) * panel_bytes_;
    for (std::int64_t g = 0; g < depth.groups(); ++g) {
      const gemm::PanelPart part = {.panel = p, .begin = depth.begin(g), .length = depth.length(g)};
      gemm::pack_panel(weight, part, to + gemm::panel_bytes(storage, depth.padded_begin(g)));
    }
  });
  order_by_panels(weight.scales(), scales_);
  if (weight.scheme().offsets) order_by_panels(weight.offsets(), offsets_);
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
