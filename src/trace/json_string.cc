#include "trace/json_string.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace plait::trace {
namespace {

// The lead bytes of sequences of one length, with the range of the second byte. That range excludes
// overlong forms, surrogates and everything beyond U+10FFFF (Unicode standard, table 3-7).
struct Form {
  std::uint8_t lead_low, lead_high, second_low, second_high;
  std::size_t length;
};
constexpr std::array<Form, 8> kForms = {{{0xc2, 0xdf, 0x80, 0xbf, 2},
                                         {0xe0, 0xe0, 0xa0, 0xbf, 3},
                                         {0xe1, 0xec, 0x80, 0xbf, 3},
                                         {0xed, 0xed, 0x80, 0x9f, 3},
                                         {0xee, 0xef, 0x80, 0xbf, 3},
                                         {0xf0, 0xf0, 0x90, 0xbf, 4},
                                         {0xf1, 0xf3, 0x80, 0xbf, 4},
                                         {0xf4, 0xf4, 0x80, 0x8f, 4}}};

bool within(char byte, std::uint8_t low, std::uint8_t high) {
  const auto value = static_cast<std::uint8_t>(byte);
  return value >= low && value <= high;
}

// The bytes of the well-formed multi-byte sequence at the start of `text`; 0 if it is malformed.
std::size_t sequence_length(std::string_view text) {
  for (const Form& form : kForms) {
    if (!within(text[0], form.lead_low, form.lead_high)) continue;
    if (text.size() < form.length || !within(text[1], form.second_low, form.second_high)) return 0;
    const auto tail = text.substr(2, form.length - 2);
    const bool good = std::ranges::all_of(tail, [](char c) { return within(c, 0x80, 0xbf); });
    return good ? form.length : 0;
  }
  return 0;
}

void append_ascii(std::string& out, char c) {
  constexpr std::string_view kHex = "0123456789abcdef";
  if (c == '"' || c == '\\') {
    out += '\\';
    out += c;
  } else if (c < 0x20) {
    out += "\\u00";
    out += kHex[static_cast<std::size_t>(c) >> 4];
    out += kHex[static_cast<std::size_t>(c) & 0xf];
  } else {
    out += c;
  }
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    std::size_t length = 1;
    if (within(text[0], 0, 0x7f)) {
      append_ascii(out, text[0]);
    } else {
      const std::size_t found = sequence_length(text);
      out += found > 0 ? text.substr(0, found) : "\ufffd";
      length = std::max<std::size_t>(1, found);
    }
    text.remove_prefix(length);
  }
  out += '"';
}

}  // namespace plait::trace
