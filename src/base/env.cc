#include "base/env.h"

#include <cstdlib>

#include "base/check.h"
#include "base/text.h"

namespace plait::base {

std::optional<std::string> env(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<std::int64_t> env_int(const char* name, std::int64_t low, std::int64_t high) {
  const auto text = env(name);
  if (!text) return std::nullopt;
  const auto value = parse_int(*text);
  PLAIT_CHECK(value && *value >= low && *value <= high, name, "=", *text,
              " is not a whole number from ", low, " to ", high);
  return value;
}

}  // namespace plait::base
