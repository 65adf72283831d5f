// Address space for matrices that are never filled: all zeros, and without memory until written.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>

#include "base/check.h"
#include "plait/tensor_view.h"

namespace plait::predict {

class ReservedMemory {
 public:
  explicit ReservedMemory(std::size_t bytes)
      : bytes_(std::max<std::size_t>(bytes, 1)),
        data_(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (data_ == MAP_FAILED) base::fail_errno(base::sentence("cannot reserve ", bytes, " bytes"));
  }
  ReservedMemory(const ReservedMemory&) = delete;
  ReservedMemory& operator=(const ReservedMemory&) = delete;
  ~ReservedMemory() { ::munmap(data_, bytes_); }

  TensorView view(Dtype dtype, std::int64_t rows, std::int64_t cols) const {
    return {.data = data_, .dtype = dtype, .rows = rows, .cols = cols, .row_stride = cols};
  }

 private:
  std::size_t bytes_;
  void* data_;
};

}  // namespace plait::predict
