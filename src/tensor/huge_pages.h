// Memory in pages of 2 MiB, where the system gives them.
#pragma once

#include <cstddef>

namespace plait::tensor {

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

// `bytes`, a multiple of kHugePage, mapped at a multiple of it, with huge pages asked for; nullptr
// where either is refused. Given back with munmap.
std::byte* map_huge_pages(std::size_t bytes);

// How much of what map_huge_pages() gave is in huge pages; 0 where the system does not say.
std::size_t huge_page_bytes(const std::byte* data, std::size_t bytes);

}  // namespace plait::tensor
