// Views of matrices in memory that the caller owns.
//
//   const auto x = plait::ConstTensorView::of(numbers, 512, 4096);   // float* → f32
//   plait::TensorView y{.data = memory, .dtype = Dtype::bf16, .rows = 512, .cols = 4096};
//   plait::TensorView block = y.row_range(64, 128).column_range(0, 1024);   // no copy
//
// A view is a few words: pass it by value, and keep it no longer than the call it was made for.
// Rows are row_stride elements apart; by default they have no gaps. The memory is the device's:
// before it reads the memory, CPU code must check that device is kCpu.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "plait/dtype.h"
#include "plait/export.h"

namespace plait {

// The device whose memory it is: the CPU, or the GPU with this index.
struct Device {
  enum class Kind : std::uint8_t { cpu, cuda };

  Kind kind = Kind::cpu;
  int index = 0;

  static constexpr Device cuda(int index) { return {Kind::cuda, index}; }

  bool operator==(const Device&) const = default;
};

inline constexpr Device kCpu{};

// "cpu", "cuda:1"
PLAIT_EXPORT std::string name(Device device);

// The inverse of name(); "cuda" alone is the first GPU; nullopt for any other text.
PLAIT_EXPORT std::optional<Device> parse_device(std::string_view text);

// Data is void* or const void*. Sizes are in elements. A view with elements must have a dtype:
// every call refuses kNoDtype.
template <class Data>
struct BasicTensorView {
  Data data = nullptr;
  Dtype dtype = kNoDtype;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = cols;
  Device device = kCpu;

  // Rows without gaps. The pointer's type implies the dtype.
  template <class T>
    requires Element<std::remove_const_t<T>> && std::convertible_to<T*, Data>
  static constexpr BasicTensorView of(T* data, std::int64_t rows, std::int64_t cols) {
    return {.data = data, .dtype = kDtypeOf<std::remove_const_t<T>>, .rows = rows, .cols = cols};
  }

  // Bytes of the elements alone, without the gaps between rows.
  std::size_t bytes() const { return static_cast<std::size_t>(rows) * row_bytes(); }
  std::size_t row_bytes() const { return static_cast<std::size_t>(cols) * size_of(dtype); }

  bool is_contiguous() const { return rows <= 1 || cols == 0 || row_stride == cols; }

  // The first element of row i.
  Data row(std::int64_t i) const { return at(i, 0); }

  // Rows [begin, end), columns [begin, end); 0 <= begin <= end <= rows or cols.
  BasicTensorView row_range(std::int64_t begin, std::int64_t end) const {
    BasicTensorView part = *this;
    part.data = at(begin, 0);
    part.rows = end - begin;
    return part;
  }
  BasicTensorView column_range(std::int64_t begin, std::int64_t end) const {
    BasicTensorView part = *this;
    part.data = at(0, begin);
    part.cols = end - begin;
    return part;
  }

  // A writable view is also a readable one.
  operator BasicTensorView<const void*>() const  // NOLINT(google-explicit-constructor)
    requires std::same_as<Data, void*>
  {
    return {data, dtype, rows, cols, row_stride, device};
  }

 private:
  Data at(std::int64_t i, std::int64_t j) const {
    using Byte = std::conditional_t<std::same_as<Data, void*>, std::byte, const std::byte>;
    const std::int64_t offset = (i * row_stride + j) * static_cast<std::int64_t>(size_of(dtype));
    return static_cast<Byte*>(data) + offset;
  }
};

using TensorView = BasicTensorView<void*>;
using ConstTensorView = BasicTensorView<const void*>;

static_assert(std::is_trivially_copyable_v<TensorView> && sizeof(TensorView) <= 48);

}  // namespace plait
