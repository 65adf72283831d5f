#include "plait/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "base/check.h"
#include "tensor/huge_pages.h"
#include "tensor/shared_pages.h"
#include "tensor/validate.h"

namespace plait {

Buffer::Buffer(std::size_t bytes, BufferOptions options) : bytes_(bytes), device_(options.device) {
  PLAIT_CHECK(device_ == kCpu, "Buffer: this build cannot allocate memory on ", name(device_));
  if (bytes == 0) return;
  const std::size_t most = std::numeric_limits<std::ptrdiff_t>::max() - 2 * tensor::huge_page();
  PLAIT_CHECK(bytes <= most, "Buffer: ", bytes, " bytes are more than memory can hold");
  if (options.huge_pages) data_ = in_huge_pages(bytes);
  if (!data_) data_ = from_heap(bytes);
}

Buffer Buffer::for_tensor(Dtype dtype, std::int64_t rows, std::int64_t cols,
                          BufferOptions options) {
  const ConstTensorView shape = {.dtype = dtype, .rows = rows, .cols = cols};
  return Buffer(tensor::checked_bytes(shape, "Buffer: a tensor that"), options);
}

TensorView Buffer::view(Dtype dtype, std::int64_t rows, std::int64_t cols) const {
  const TensorView whole = {.data = data(),
                            .dtype = dtype,
                            .rows = rows,
                            .cols = cols,
                            .row_stride = cols,
                            .device = device_};
  const std::size_t needed = tensor::checked_bytes(whole, "Buffer: a view that");
  PLAIT_CHECK(needed <= bytes(), "Buffer: a view of ", rows, " x ", cols, " ", name(dtype),
              " takes ", needed, " bytes but the buffer has ", bytes());
  return whole;
}

std::size_t Buffer::huge_page_bytes() const {
  if (!data_ || data_.get_deleter().mapped == 0) return 0;
  return tensor::huge_page_bytes(data_.get(), data_.get_deleter().mapped);
}

void Buffer::Release::operator()(std::byte* data) const {
  if (mapped == 0) {
    std::free(data);
  } else if (tensor::mapped_in_huge_pages(mapped) == 0) {
    tensor::give_shared_pages(data, mapped);
  } else {
    ::munmap(data, mapped);
  }
}

Buffer::Memory Buffer::from_heap(std::size_t bytes) {
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto* data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
  if (data == nullptr) base::fail_errno(base::sentence("Buffer: cannot get ", bytes, " bytes"));
  return Memory(data, Release{});
}

// Large buffers have pages of their own.
Buffer::Memory Buffer::in_huge_pages(std::size_t bytes) {
  const std::size_t mapped = tensor::mapped_in_huge_pages(bytes);
  if (mapped == 0) return Memory(tensor::take_shared_pages(bytes), Release{bytes});
  return Memory(tensor::map_huge_pages(mapped), Release{mapped});
}

}  // namespace plait
