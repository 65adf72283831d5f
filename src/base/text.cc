#include "base/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

namespace plait::base {
namespace {

using Unit = std::pair<std::string_view, double>;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return out;
}

// "2.5gbit" → 2.5 times the value of "gbit"; nullopt for an unknown unit, a negative or a
// non-finite number.
template <std::size_t N>
std::optional<double> parse_with_unit(std::string_view text, const std::array<Unit, N>& units) {
  const std::string folded = lower(text);
  const std::size_t unit_at = folded.find_last_of("0123456789.") + 1;
  const auto number = parse_number(std::string_view(folded).substr(0, unit_at));
  const std::string_view unit = std::string_view(folded).substr(unit_at);
  if (!number || *number < 0) return std::nullopt;
  for (const auto& [name, factor] : units) {
    if (unit == name) return *number * factor;
  }
  return std::nullopt;
}

std::string show_scaled(double value, const char* unit) {
  std::array<char, 48> text{};
  const int decimals = value >= 100 || value == std::floor(value) ? 0 : value >= 10 ? 1 : 2;
  std::snprintf(text.data(), text.size(), "%.*f %s", decimals, value, unit);
  return text.data();
}

}  // namespace

std::optional<std::int64_t> parse_int(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

std::optional<Nanoseconds> parse_duration(std::string_view text, Nanoseconds bare) {
  const std::array<Unit, 7> units = {{{"", static_cast<double>(bare)},
                                      {"ns", 1},
                                      {"us", kMicrosecond},
                                      {"ms", kMillisecond},
                                      {"s", kSecond},
                                      {"min", 60.0 * kSecond},
                                      {"h", 3600.0 * kSecond}}};
  const auto value = parse_with_unit(text, units);
  if (!value || *value > 9e18) return std::nullopt;
  return static_cast<Nanoseconds>(std::llround(*value));
}

std::optional<double> parse_bandwidth(std::string_view text) {
  static constexpr std::array<Unit, 13> kUnits = {{{"bit", 1e0 / 8},
                                                   {"kbit", 1e3 / 8},
                                                   {"mbit", 1e6 / 8},
                                                   {"gbit", 1e9 / 8},
                                                   {"tbit", 1e12 / 8},
                                                   {"b/s", 1e0},
                                                   {"kb/s", 1e3},
                                                   {"mb/s", 1e6},
                                                   {"gb/s", 1e9},
                                                   {"tb/s", 1e12},
                                                   {"kbyte", 1e3},
                                                   {"mbyte", 1e6},
                                                   {"gbyte", 1e9}}};
  return parse_with_unit(text, kUnits);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::string show_duration(Nanoseconds duration) {
  const auto value = static_cast<double>(duration);
  if (duration < kMicrosecond) return show_scaled(value, "ns");
  if (duration < kMillisecond) return show_scaled(value / kMicrosecond, "us");
  if (duration < kSecond) return show_scaled(value / kMillisecond, "ms");
  return show_scaled(value / kSecond, "s");
}

std::string show_bytes(double bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return show_scaled(bytes, kUnits[unit]);
}

std::string to_hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const unsigned char byte : bytes) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 0xf];
  }
  return hex;
}

std::string show_percent(double share) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %%", 100 * share);
  return text.data();
}

std::string show_factor(double factor) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f", factor);
  return text.data();
}

std::string show_count(std::size_t count, const std::string& noun) {
  if (count == 1) return "1 " + noun;
  return std::to_string(count) + " " + noun + (noun.ends_with('s') ? "es" : "s");
}

std::string show_list(const std::vector<int>& numbers) {
  constexpr std::size_t kShown = 16;
  // "and 1 more" would take as much space as the number itself.
  const bool all = numbers.size() <= kShown + 1;
  const std::size_t shown = all ? numbers.size() : kShown;
  std::string text;
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) text += all && i + 1 == shown ? " and " : ", ";
    text += std::to_string(numbers[i]);
  }
  if (!all) text += " and " + std::to_string(numbers.size() - shown) + " more";
  return text;
}

}  // namespace plait::base
