// Memory for matrices, which the buffer owns.
//
//   plait::Buffer buffer = plait::Buffer::for_tensor(Dtype::bf16, 512, 4096);
//   plait::TensorView x = buffer.view(Dtype::bf16, 512, 4096);   // must not outlive the buffer
//
// It is aligned to 64 bytes, and its contents start undefined. A buffer of no bytes is legal and
// has no memory; a buffer that was moved from is one. Error{system} if there is not enough memory.
//
// The memory is the device's: CPU code may touch it only if that is kCpu. This build makes only
// memory of the CPU, and refuses other devices with Error{invalid_argument}.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "plait/dtype.h"
#include "plait/export.h"
#include "plait/tensor_view.h"

namespace plait {

struct BufferOptions {
  // Asks for huge pages, mostly of 2 MiB, which spare the processor most page-table walks. Buffers
  // from 64 KiB to below 2 MiB share pages of 2 MiB. Smaller ones have ordinary pages, as all have
  // without huge ones.
  bool huge_pages = false;

  Device device = kCpu;
};

class PLAIT_EXPORT Buffer {
 public:
  static constexpr std::size_t kAlignment = 64;

  Buffer() = default;
  explicit Buffer(std::size_t bytes, BufferOptions options = {});

  // Room for `rows` x `cols` elements, row after row without gaps.
  static Buffer for_tensor(Dtype dtype, std::int64_t rows, std::int64_t cols,
                           BufferOptions options = {});

  std::byte* data() const { return data_.get(); }
  std::size_t bytes() const { return data_ ? bytes_ : 0; }
  Device device() const { return device_; }

  // A contiguous matrix at the start of the buffer; Error{invalid_argument} if it does not fit.
  TensorView view(Dtype dtype, std::int64_t rows, std::int64_t cols) const;

  // How much of the buffer is in huge pages now. A page is allocated when it is first touched, so
  // an untouched buffer has none. Reads /proc: for reports, not for inner loops.
  std::size_t huge_page_bytes() const;

 private:
  struct Release {
    std::size_t mapped;  // 0: from the heap; less than a huge page: from shared ones
    void operator()(std::byte* data) const;
  };
  using Memory = std::unique_ptr<std::byte, Release>;

  static Memory from_heap(std::size_t bytes);
  static Memory in_huge_pages(std::size_t bytes);

  Memory data_;
  std::size_t bytes_ = 0;
  Device device_;
};

}  // namespace plait
