#include "quant/scheme.h"

#include "base/check.h"
#include "base/text.h"
#include "quant/format.h"

namespace plait {
namespace {

constexpr std::string_view kGroup = "group=";
constexpr std::string_view kOffsets = "offsets";

std::string per_name(const QuantScheme& scheme) {
  switch (scheme.per) {
    case QuantPer::tensor:
      return "tensor";
    case QuantPer::channel:
      return "channel";
    case QuantPer::group:
      return std::string(kGroup) + std::to_string(scheme.group);
  }
  return "unknown";
}

// "group=128" → 128. Only what name() writes is accepted: no sign, no leading zeros.
std::optional<std::int64_t> parse_group(std::string_view word) {
  if (!word.starts_with(kGroup)) return std::nullopt;
  word.remove_prefix(kGroup.size());
  if (word.starts_with('0') || word.starts_with('-')) return std::nullopt;
  return base::parse_int(word);
}

bool parse_per(std::string_view word, QuantScheme& scheme) {
  if (word == "tensor") {
    scheme.per = QuantPer::tensor;
  } else if (word == "channel") {
    scheme.per = QuantPer::channel;
  } else if (const auto group = parse_group(word)) {
    scheme.per = QuantPer::group;
    scheme.group = *group;
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::string name(const QuantScheme& scheme) {
  const quant::Format* format = quant::find_format(scheme.bits);
  const std::string values = format ? std::string(format->name) : base::sentence("s", scheme.bits);
  return base::sentence(values, ":", per_name(scheme), scheme.offsets ? ":" : "",
                        scheme.offsets ? kOffsets : "");
}

std::optional<QuantScheme> parse_quant_scheme(std::string_view text) {
  const auto words = base::split(text, ':');
  QuantScheme scheme = {.bits = 0};
  for (const quant::Format* format : quant::formats()) {
    if (words[0] == format->name) scheme.bits = format->bits;
  }
  if (scheme.bits == 0) return std::nullopt;
  std::size_t at = 1;
  if (at < words.size() && parse_per(words[at], scheme)) ++at;
  if (at < words.size() && words[at] == kOffsets) {
    scheme.offsets = true;
    ++at;
  }
  if (at != words.size()) return std::nullopt;
  return scheme;
}

namespace quant {

void check_scheme(const QuantScheme& scheme, std::string_view who) {
  PLAIT_CHECK(find_format(scheme.bits) != nullptr, who, ": the scheme has ", scheme.bits,
              " bits; 8 or 4 are possible");
  PLAIT_CHECK(scheme.per <= QuantPer::group, who, ": the scheme shares scales in the unknown way ",
              static_cast<int>(scheme.per));
  if (scheme.per == QuantPer::group) {
    PLAIT_CHECK(scheme.group >= 1, who, ": the scheme has groups of ", scheme.group,
                "; at least 1 is needed");
  } else {
    PLAIT_CHECK(scheme.group == 0, who, ": the scheme has groups of ", scheme.group,
                " but shares its scales per ", per_name(scheme));
  }
}

void check_layout(WeightLayout layout, std::string_view who) {
  PLAIT_CHECK(layout <= WeightLayout::in_out, who, " has the unknown layout ",
              static_cast<int>(layout));
}

std::int64_t group_size(const QuantScheme& scheme, std::int64_t k) {
  return scheme.per == QuantPer::group ? scheme.group : std::max<std::int64_t>(k, 1);
}

std::int64_t group_count(const QuantScheme& scheme, std::int64_t k) {
  if (scheme.per != QuantPer::group) return 1;
  return k / scheme.group + (k % scheme.group != 0 ? 1 : 0);
}

}  // namespace quant
}  // namespace plait
