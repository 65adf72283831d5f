// The memory that a product keeps between calls, for the kernel that multiplies it on this machine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gemm/kernel.h"
#include "plait/gemm.h"

namespace plait::measure {

class ProductMemory {
 public:
  // `backend` is a name; empty: the best. `threads` is as in GemmOptions.
  ProductMemory(const GemmDesc& desc, const std::string& backend, int threads);

  // Bytes of prepared rows of X, which has `rows` rows of k elements; 0 if the kernel reads X in
  // place.
  double ready_rows(std::int64_t rows, std::int64_t k, bool transposed = false) const;

  // Bytes of the workspace of all threads for so many rows and columns: sums, and blocks of a
  // weight that is converted.
  double workspace(std::int64_t rows, std::int64_t columns) const;

 private:
  GemmDesc desc_;
  std::unique_ptr<gemm::TileKernel> kernel_;  // null: the reference, which keeps nothing
  int threads_;
};

}  // namespace plait::measure
