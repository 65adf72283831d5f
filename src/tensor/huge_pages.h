// Memory in pages of 2 MiB, where the system provides them.
#pragma once

#include <cstddef>

namespace plait::tensor {

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Maps `bytes`, a multiple of kHugePage, at an address that is a multiple of it, and asks for huge
// pages. nullptr if either is refused. Free it with munmap.
std::byte* map_huge_pages(std::size_t bytes);

// How many bytes of memory from map_huge_pages() are in huge pages. 0 if the system does not report
// it.
std::size_t huge_page_bytes(const std::byte* data, std::size_t bytes);

}  // namespace plait::tensor
