// This host's memory and its pages.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace plait::measure {

struct HugePages {
  std::int64_t bytes = 0;  // of one page
  std::int64_t reserved = 0;
  std::int64_t free = 0;
};

struct Memory {
  std::int64_t bytes = 0;
  std::int64_t available = 0;
  std::int64_t page = 0;
  std::vector<HugePages> huge_pages;
  std::string transparent;         // "always", "madvise", "never"; empty: none
  std::string shared_transparent;  // the same for shared memory, which mailboxes use
};

// `root` contains proc/ and sys/.
Memory read_memory(const std::filesystem::path& root = "/");

// Refuses `what`, which takes so many bytes, if this host has fewer now.
void check_memory(double bytes, std::string_view what);

}  // namespace plait::measure
