// The highest memory use of this process since a chosen moment.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace plait::measure {

// Resets the peak. False if the system does not allow it.
bool forget_peak(const std::filesystem::path& process = "/proc/self");

// Bytes; nullopt if the system does not report it.
std::optional<std::int64_t> read_peak(const std::filesystem::path& process = "/proc/self");

}  // namespace plait::measure
