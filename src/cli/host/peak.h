// The most memory that this process has had in its hands, since a moment of one's choice.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace plait::cli {

// Forgets what was: from now on. False where the system does not let it be forgotten.
bool forget_peak(const std::filesystem::path& process = "/proc/self");

// Bytes; nothing where the system does not tell.
std::optional<std::int64_t> read_peak(const std::filesystem::path& process = "/proc/self");

}  // namespace plait::cli
