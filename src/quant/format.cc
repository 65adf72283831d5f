#include "quant/format.h"

#include <array>

#include "base/check.h"

namespace plait::quant {

std::span<const Format* const> formats() {
  static constexpr std::array<const Format*, 2> kAll = {&kS8, &kS4};
  return kAll;
}

const Format* find_format(int bits) {
  for (const Format* format : formats()) {
    if (format->bits == bits) return format;
  }
  return nullptr;
}

const Format& format_of(int bits) {
  const Format* format = find_format(bits);
  PLAIT_CHECK(format != nullptr, "quantized weight: no format has ", bits, " bits");
  return *format;
}

}  // namespace plait::quant
