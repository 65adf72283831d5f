#include "plait/link.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/text.h"

namespace plait {
namespace {

// Larger values are surely typing errors.
constexpr double kMostBandwidth = 1e15;  // bytes a second
constexpr std::int64_t kMostLatency = 3600 * base::kSecond;

// The shortest text that parses to this number.
std::string shortest(double number) {
  std::array<char, 64> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  return end.ec == std::errc() ? std::string(text.data(), end.ptr) : std::to_string(number);
}

// Uses the largest unit that parses back to exactly this value.
std::string name_of_bandwidth(double bytes_per_second) {
  struct Unit {
    const char* name;
    double bytes;
  };
  constexpr std::array<Unit, 3> kUnits = {{{"gbit", 1e9 / 8}, {"mbit", 1e6 / 8}, {"bit", 1.0 / 8}}};
  for (const Unit& unit : kUnits) {
    if (bytes_per_second < unit.bytes) continue;
    const std::string text = shortest(bytes_per_second / unit.bytes) + unit.name;
    if (text.size() < 16 && base::parse_bandwidth(text) == bytes_per_second) return text;
  }
  return shortest(bytes_per_second) + "b/s";
}

std::string name_of_latency(std::int64_t nanoseconds) {
  if (nanoseconds % base::kMillisecond == 0 && nanoseconds > 0)
    return std::to_string(nanoseconds / base::kMillisecond) + "ms";
  if (nanoseconds % base::kMicrosecond == 0)
    return std::to_string(nanoseconds / base::kMicrosecond) + "us";
  return std::to_string(nanoseconds) + "ns";
}

}  // namespace

Link parse_link(std::string_view text) {
  Link link = {.bytes_per_second = std::numeric_limits<double>::infinity()};
  const auto parts = base::split(text, ',');
  const auto refuse_unless = [&](bool understood) {
    PLAIT_CHECK(understood, "the link \"", text,
                "\" is not like \"25gbit,5us\": a bandwidth, a latency, or both");
  };
  refuse_unless(parts.size() <= 2);
  bool has_bandwidth = false;
  bool has_latency = false;
  for (const std::string_view part : parts) {
    if (const auto bandwidth = base::parse_bandwidth(part); bandwidth && !has_bandwidth) {
      refuse_unless(*bandwidth >= 1);
      PLAIT_CHECK(*bandwidth <= kMostBandwidth, "the link \"", text,
                  "\" has a bandwidth of more than 1e15 bytes/s");
      link.bytes_per_second = *bandwidth;
      has_bandwidth = true;
    } else {
      // A bare number is refused, since it could mean either.
      const auto latency = base::parse_number(part) ? std::nullopt : base::parse_duration(part);
      refuse_unless(latency.has_value() && !has_latency);
      link.latency_ns = latency.value_or(0);
      PLAIT_CHECK(link.latency_ns <= kMostLatency, "the link \"", text,
                  "\" has a latency of more than an hour");
      has_latency = true;
    }
  }
  return link;
}

std::string name(const Link& link) {
  std::string latency = name_of_latency(link.latency_ns);
  if (std::isinf(link.bytes_per_second)) return latency;
  return name_of_bandwidth(link.bytes_per_second) + "," + latency;
}

std::string describe(const Link& link) {
  const std::string latency = base::show_duration(link.latency_ns);
  if (std::isinf(link.bytes_per_second)) return base::sentence("emulated link, ", latency);
  return base::sentence("emulated link, ", link.bytes_per_second * 8 / 1e9, " Gbit/s, ", latency);
}

}  // namespace plait
