// Memory in huge pages, where the system provides them.
//
// The processor's huge pages have 2 MiB if its small ones have 4 KiB, and 512 MiB if these have
// 64 KiB, as many systems of Arm have. Linux can join small pages into 2 MiB there too, since 6.8.
#pragma once

#include <cstddef>
#include <string>

namespace plait::tensor {

inline constexpr std::size_t kTwoMiB = std::size_t{2} << 20;

// The size of those that memory should be aligned to: 2 MiB if the system offers them, otherwise
// the processor's. `folder` is where Linux tells of them.
std::size_t find_huge_page(const std::string& folder = "/sys/kernel/mm/transparent_hugepage");

// Likewise, found once.
std::size_t huge_page();

// How many bytes map_huge_pages() takes for `bytes`, of which a multiple of 2 MiB is made: the last
// page may be an incomplete one if pages are larger. 0 for less than a huge page.
std::size_t mapped_in_huge_pages(std::size_t bytes, std::size_t page = huge_page());

// Maps `bytes`, a multiple of 2 MiB, at an address that is a multiple of `page`, and asks for huge
// pages. nullptr if either is refused. Free it with munmap.
std::byte* map_huge_pages(std::size_t bytes, std::size_t page = huge_page());

// How many bytes of memory from map_huge_pages() are in the processor's huge pages. 0 if the system
// does not report it.
std::size_t huge_page_bytes(const std::byte* data, std::size_t bytes);

}  // namespace plait::tensor
