// How a quantised weight is stored: the number of bits, and which elements share a scale.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "plait/export.h"

namespace plait {

// The elements that share a scale: all, those of an output column, or `group` consecutive k of one.
enum class QuantPer : std::uint8_t { tensor, channel, group };

struct QuantScheme {
  int bits = 8;  // or 4
  QuantPer per = QuantPer::channel;
  std::int64_t group = 0;  // with QuantPer::group: at least 1; the last group may be shorter
  bool offsets = false;    // quantize() finds the best offset too: for weights off centre

  bool operator==(const QuantScheme&) const = default;
};

// "s8:channel", "s8:group=128", "s4:group=64:offsets", "s8:tensor".
PLAIT_EXPORT std::string name(const QuantScheme& scheme);

// The inverse of name(), which may also leave ":channel" out: "s8", "s4:offsets". nullopt for any
// other text.
PLAIT_EXPORT std::optional<QuantScheme> parse_quant_scheme(std::string_view text);

}  // namespace plait
