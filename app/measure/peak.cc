#include "measure/peak.h"

#include <fstream>
#include <string>

namespace plait::measure {

bool forget_peak(const std::filesystem::path& process) {
  std::ofstream file(process / "clear_refs");
  file << "5" << std::flush;  // sets the high-water mark to the current use
  return file.good();
}

std::optional<std::int64_t> read_peak(const std::filesystem::path& process) {
  constexpr std::int64_t kKilobyte = 1024;
  std::ifstream file(process / "status");
  for (std::string word; file >> word;) {
    std::int64_t kilobytes = 0;
    if (word == "VmHWM:" && file >> kilobytes) return kilobytes * kKilobyte;
  }
  return std::nullopt;
}

}  // namespace plait::measure
