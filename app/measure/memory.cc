#include "measure/memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string_view>
#include <system_error>

#include "base/check.h"
#include "base/text.h"

namespace plait::measure {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// "always [madvise] never" → "madvise"
std::string chosen(const std::string& line) {
  const auto open = line.find('[');
  const auto close = line.find(']');
  return open < close && close != std::string::npos ? line.substr(open + 1, close - open - 1) : "";
}

// "hugepages-2048kB" → 2097152
std::int64_t page_bytes(std::string_view folder) {
  constexpr std::string_view kBefore = "hugepages-";
  if (!folder.starts_with(kBefore) || !folder.ends_with("kB")) return 0;
  folder.remove_prefix(kBefore.size());
  folder.remove_suffix(2);
  return base::parse_int(folder).value_or(0) * 1024;
}

std::int64_t number_in(const fs::path& file) {
  return base::parse_int(first_line(file)).value_or(0);
}

std::vector<HugePages> read_huge_pages(const fs::path& folder) {
  std::vector<HugePages> sizes;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::int64_t bytes = page_bytes(entry.path().filename().string());
    if (bytes == 0) continue;
    sizes.push_back({.bytes = bytes,
                     .reserved = number_in(entry.path() / "nr_hugepages"),
                     .free = number_in(entry.path() / "free_hugepages")});
  }
  std::sort(sizes.begin(), sizes.end(),
            [](const HugePages& a, const HugePages& b) { return a.bytes < b.bytes; });
  return sizes;
}

}  // namespace

Memory read_memory(const fs::path& root) {
  const fs::path kernel = root / "sys/kernel/mm";
  Memory memory;
  memory.page = sysconf(_SC_PAGESIZE);
  memory.huge_pages = read_huge_pages(kernel / "hugepages");
  memory.transparent = chosen(first_line(kernel / "transparent_hugepage/enabled"));
  memory.shared_transparent = chosen(first_line(kernel / "transparent_hugepage/shmem_enabled"));
  std::ifstream in(root / "proc/meminfo");
  std::string name;
  std::int64_t kibibytes = 0;
  for (std::string unit; in >> name >> kibibytes; std::getline(in, unit)) {
    if (name == "MemTotal:") memory.bytes = kibibytes * 1024;
    if (name == "MemAvailable:") memory.available = kibibytes * 1024;
  }
  return memory;
}

void check_memory(double bytes, std::string_view what) {
  const auto available = static_cast<double>(read_memory().available);
  PLAIT_CHECK(bytes <= available, what, " may take ", base::show_bytes(bytes), "; available are ",
              base::show_bytes(available));
}

}  // namespace plait::measure
