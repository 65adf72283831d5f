// Copies of what is larger than the caches, where memcpy does not know what lies ahead.
//
//   copy_ahead(slot, piece, bytes);  // piece by piece: what follows the piece is on its way
//   stream_copy(out, slot, bytes);   // `out` is not read first, and drives nothing out of a cache
//   stream_fence();                  // after the last one
#pragma once

#include <cstddef>

namespace plait::tensor {

// Fetches what lies behind `from` too, as if it were to be copied next. Addresses that do not exist
// are harmless.
void copy_ahead(void* to, const void* from, std::size_t bytes);

// Writes past the caches. Memory ordering: other threads see the bytes after a release store of
// this thread only if stream_fence() came before it; this thread sees them at once.
void stream_copy(void* to, const void* from, std::size_t bytes);
void stream_fence();

}  // namespace plait::tensor
