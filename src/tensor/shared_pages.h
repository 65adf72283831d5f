// Memory of less than a huge page, within huge pages that several owners share.
//
// A small page is looked up for every 4 KiB that a product reads, which takes longer than reading
// them where a layer has many small weights, as experts are.
#pragma once

#include <cstddef>

namespace plait::tensor {

// Aligned to 64 bytes, with any contents. nullptr: for a size that isn't worth it, in builds whose
// sanitizer looks after each owner's bounds, and where the system gives no pages of 2 MiB.
std::byte* take_shared_pages(std::size_t bytes);

// Gives back what was taken, with as many bytes as were asked for. Memory without an owner goes
// back to the system, 64 MiB at a time.
void give_shared_pages(std::byte* data, std::size_t bytes) noexcept;

}  // namespace plait::tensor
