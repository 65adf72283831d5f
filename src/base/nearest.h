// Suggestions for a mistyped word.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace plait::base {

// "; did you mean run?" for "rnu", and nothing where no candidate is near.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

}  // namespace plait::base
