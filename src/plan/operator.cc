#include "plait/operator.h"

#include <algorithm>
#include <string>

namespace plait {

std::string_view name(Operator op) { return traits_of(op).name; }

std::optional<Operator> parse_operator(std::string_view text) {
  std::string word(text);
  std::replace(word.begin(), word.end(), '-', '_');
  const auto* const found = std::find_if(kOperatorTraits.begin(), kOperatorTraits.end(),
                                         [&](const auto& traits) { return traits.name == word; });
  if (found == kOperatorTraits.end()) return std::nullopt;
  return static_cast<Operator>(found - kOperatorTraits.begin());
}

}  // namespace plait
