#include "measure/product_memory.h"

#include <algorithm>

#include "base/parallel.h"
#include "gemm/backends.h"
#include "gemm/kernel.h"
#include "gemm/panels.h"
#include "gemm/product.h"
#include "gemm/quant_panels.h"
#include "gemm/rows.h"

namespace plait::measure {
namespace {

std::unique_ptr<gemm::TileKernel> kernel_of(const GemmDesc& desc, const std::string& name) {
  for (const gemm::Backend& backend : gemm::backends()) {
    const bool is_wanted = name.empty() || name == backend.name;
    if (is_wanted && refusal(backend, desc) == nullptr) return backend.create(backend.operand);
  }
  return nullptr;
}

}  // namespace

ProductMemory::ProductMemory(const GemmDesc& desc, const std::string& backend, int threads)
    : desc_(desc), kernel_(kernel_of(desc, backend)), threads_(base::thread_count(threads)) {}

double ProductMemory::ready_rows(std::int64_t rows, std::int64_t k, bool transposed) const {
  if (kernel_ == nullptr) return 0;
  const Input x = {.view = {.dtype = desc_.x}, .transposed = transposed};
  GemmDesc desc = desc_;
  desc.k = k;
  const gemm::Depth depth = gemm::depth_of(desc);
  if (can_read_in_place(x, depth, *kernel_)) return 0;
  return static_cast<double>(gemm::packed_rows_bytes(rows, depth, *kernel_));
}

double ProductMemory::workspace(std::int64_t rows, std::int64_t columns) const {
  if (kernel_ == nullptr) return 0;
  const gemm::Blocking blocking = kernel_->blocking();
  const std::int64_t at_once = std::min(rows, gemm::kSuperblockRows);
  const std::int64_t panels =
      std::min(gemm::panels_of_job(blocking, at_once), gemm::panels_of(columns));
  std::int64_t elements = at_once * panels * gemm::kPanelColumns;  // f32 sums
  const gemm::Storage storage =
      desc_.quant ? gemm::storage_of(*desc_.quant) : gemm::storage_of(desc_.weight);
  if (!is_operand(storage, kernel_->operand()))
    elements += std::int64_t{2} * blocking.k * gemm::kPanelColumns;
  return static_cast<double>(sizeof(float)) *
         static_cast<double>(threads_ * elements + columns);  // and the bias
}

}  // namespace plait::measure
