#include "plait/dtype.h"

#include <array>
#include <cstring>

#include "base/check.h"
#include "tensor/kernels.h"

namespace plait {

std::string_view name(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return "f32";
    case Dtype::bf16:
      return "bf16";
    case Dtype::f16:
      return "f16";
    case Dtype::s8:
      return "s8";
  }
  return "unknown";
}

std::optional<Dtype> parse_dtype(std::string_view text) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::s8}) {
    if (text == name(dtype)) return dtype;
  }
  return std::nullopt;
}

void convert(const void* from, Dtype from_dtype, void* to, Dtype to_dtype, std::size_t n) {
  PLAIT_CHECK(from_dtype <= Dtype::s8 && to_dtype <= Dtype::s8, "convert: from ", name(from_dtype),
              " to ", name(to_dtype), ": there are f32, bf16, f16 and s8");
  if (n == 0) return;
  if (from_dtype == to_dtype) {
    std::memmove(to, from, n * size_of(to_dtype));
    return;
  }
  tensor::kernels().sum(from_dtype, to_dtype)(to, &from, 1, n);
}

}  // namespace plait
