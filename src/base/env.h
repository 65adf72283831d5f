// Reads environment variables. An empty variable counts as unset. A value that cannot be read is
// refused with the variable's name and value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace plait::base {

std::optional<std::string> env(const char* name);

// A whole number within [low, high].
std::optional<std::int64_t> env_int(const char* name, std::int64_t low, std::int64_t high);

}  // namespace plait::base
