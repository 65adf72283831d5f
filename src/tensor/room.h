// Memory that grows with what is asked of it, and is kept.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

#include "base/round_up.h"
#include "plait/buffer.h"

namespace plait::tensor {

// Sees to it that the buffer has so many bytes; what it held is lost where it has to grow. A buffer
// that grows again gets up to a quarter more than was asked for, so that sizes which creep up one
// by one don't each have memory made for them.
inline void make_room(Buffer& buffer, std::size_t bytes) {
  if (bytes <= buffer.bytes()) return;
  const std::size_t step = std::max<std::size_t>(std::bit_floor(bytes) / 4, 1);
  const std::size_t room = buffer.bytes() == 0 ? bytes : base::round_up(bytes, step);
  buffer = Buffer();  // first, so that there are never both
  buffer = Buffer(room, {.huge_pages = true});
}

}  // namespace plait::tensor
