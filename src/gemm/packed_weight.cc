#include "plait/packed_weight.h"

#include "base/check.h"
#include "gemm/depth.h"
#include "gemm/panels.h"
#include "gemm/parallel.h"
#include "tensor/validate.h"

namespace plait {
namespace {

// k rows of a panel at a time: a few pages of each of the weight's rows, so that what is read in
// pieces of a line stays in the cache until all of it has been used.
constexpr std::int64_t kDepthAtOnce = 512;

std::size_t bytes_of_panel(Dtype dtype, std::int64_t k) {
  return gemm::panel_bytes(gemm::storage_of(dtype), gemm::round_up(k, gemm::kKStep));
}

}  // namespace

PackedWeight::PackedWeight(const WeightView& weight, int threads)
    : dtype_(weight.view.dtype), n_(weight.n()), k_(weight.k()) {
  tensor::validate_on_cpu(weight.view, "packed weight: weight");
  PLAIT_CHECK(dtype_ != Dtype::s8, "packed weight: weight is s8, which needs scales");
  const std::int64_t panels = gemm::panels_of(n_);
  panels_ =
      Buffer(static_cast<std::size_t>(panels) * bytes_of_panel(dtype_, k_), {.huge_pages = true});
  gemm::parallel_for(panels, threads, [&](std::int64_t p) {
    for (std::int64_t k = 0; k < k_; k += kDepthAtOnce) {
      const gemm::PanelPart part = {
          .panel = p, .begin = k, .length = std::min(kDepthAtOnce, k_ - k)};
      gemm::pack_panel(weight, part,
                       panels_.data() + static_cast<std::size_t>(p) * bytes_of_panel(dtype_, k_) +
                           gemm::panel_bytes(gemm::storage_of(dtype_), k));
    }
  });
}

const std::byte* PackedWeight::panel(std::int64_t p) const {
  return panels_.data() + static_cast<std::size_t>(p) * bytes_of_panel(dtype_, k_);
}

}  // namespace plait
