// Copies of data larger than the caches, in pieces: memcpy does not know that more pieces follow.
//
//   copy_ahead(slot, piece, bytes);  // also fetches what follows the piece
//   stream_copy(out, slot, bytes);   // does not read `out`, and evicts nothing from the caches
//   stream_fence();                  // after the last piece
#pragma once

#include <cstddef>

namespace plait::tensor {

// Also fetches the bytes after `from`, which are assumed to be copied next. Prefetching addresses
// that do not exist is harmless.
void copy_ahead(void* to, const void* from, std::size_t bytes);

// Writes past the caches. Memory ordering: this thread sees the bytes at once. Other threads see
// them after a release store of this thread, if stream_fence() came before the store.
void stream_copy(void* to, const void* from, std::size_t bytes);
void stream_fence();

}  // namespace plait::tensor
