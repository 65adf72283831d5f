// What a product keeps from call to call, by the kernel that multiplies it on this machine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gemm/kernel.h"
#include "plait/gemm.h"

namespace plait::cli {

class ProductMemory {
 public:
  // Of a backend by its name, empty: the best; `threads` as GemmOptions has them.
  ProductMemory(const GemmDesc& desc, const std::string& backend, int threads);

  // Bytes of X made ready, which is `rows` by k. Nothing, where the kernel reads it in place.
  double ready_rows(std::int64_t rows, std::int64_t k, bool transposed = false) const;

  // Bytes that all threads work in, for so many rows and columns: sums, and blocks of a weight that
  // is widened.
  double workspace(std::int64_t rows, std::int64_t columns) const;

 private:
  GemmDesc desc_;
  std::unique_ptr<gemm::TileKernel> kernel_;  // null: the reference, which keeps nothing
  int threads_;
};

}  // namespace plait::cli
