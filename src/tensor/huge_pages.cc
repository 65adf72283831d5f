#include "tensor/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

#include "base/round_up.h"

namespace plait::tensor {
std::size_t find_huge_page(const std::string& folder) {
  // "always inherit [madvise] never"
  std::ifstream joined(folder + "/hugepages-2048kB/enabled");
  std::string words;
  if (std::getline(joined, words) && words.find("[never]") == std::string::npos) return kTwoMiB;
  std::ifstream file(folder + "/hpage_pmd_size");
  std::size_t bytes = 0;
  const bool told = static_cast<bool>(file >> bytes);
  return told && bytes > kTwoMiB && bytes % kTwoMiB == 0 ? bytes : kTwoMiB;
}

std::size_t huge_page() {
  static const std::size_t page = find_huge_page();
  return page;
}

std::size_t mapped_in_huge_pages(std::size_t bytes, std::size_t page) {
  return bytes < page ? 0 : base::round_up(bytes, kTwoMiB);
}

std::byte* map_huge_pages(std::size_t bytes, std::size_t page) {
  // mmap aligns to small pages only, so one huge page more is mapped, and the parts before and
  // after the aligned part are unmapped.
  const std::size_t mapped = bytes + page;
  void* start = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return nullptr;
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(start) % page;
  std::byte* data = static_cast<std::byte*>(start) + before;
  if (before > 0) ::munmap(start, before);
  ::munmap(data + bytes, page - before);
  if (::madvise(data, bytes, MADV_HUGEPAGE) == 0) return data;
  ::munmap(data, bytes);
  return nullptr;
}

std::size_t huge_page_bytes(const std::byte* data, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  std::ifstream maps("/proc/self/smaps");
  bool ours = false;
  std::size_t found = 0;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t low = 0;
    std::uintptr_t high = 0;
    std::size_t kib = 0;
    // "7f2a00000000-7f2a00400000 rw-p ..." starts a mapping; "AnonHugePages:   4096 kB" belongs to
    // it.
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &low, &high) == 2) {
      ours = low < begin + bytes && begin < high;
    } else if (ours && std::sscanf(line.c_str(), "AnonHugePages: %zu", &kib) == 1) {
      found += kib * 1024;
    }
  }
  // The mapping may include memory of others.
  return std::min(found, bytes);
}

}  // namespace plait::tensor
