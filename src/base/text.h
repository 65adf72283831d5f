// Parses what people write: whole numbers, durations ("5us", "60", "1.5s"), rates ("25gbit",
// "3GB/s"). Each function returns nullopt for text that it does not understand, and the caller
// reports the error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace plait::base {

std::optional<std::int64_t> parse_int(std::string_view text);
std::optional<double> parse_number(std::string_view text);

// "250ns", "5us", "3ms", "60s", "2min". A bare number has the unit `bare`.
std::optional<Nanoseconds> parse_duration(std::string_view text, Nanoseconds bare = kSecond);

// For the refusal of a text that is none. It names the units, because "1m" is easily tried.
inline constexpr const char* kExamplesOfDurations = "500ms, 90s, 30min or 2h";

// Bytes per second from "25gbit", "400mbit", "3gb/s", "3gbyte". Case does not matter.
std::optional<double> parse_bandwidth(std::string_view text);

std::vector<std::string_view> split(std::string_view text, char separator);

// "5.0 us", "1.25 s": about three significant figures.
std::string show_duration(Nanoseconds duration);
std::string show_bytes(double bytes);    // "64 KiB", "1.5 GiB"
std::string show_percent(double share);  // "3.1 %"
std::string show_factor(double factor);  // "1.32"

std::string show_count(std::size_t count, const std::string& noun);  // "1 process", "2 processes"

// Two hex digits for each byte.
std::string to_hex(std::string_view bytes);

// "1", "1 and 4", "0, 2 and 5". A long list is shortened: its first few, then "and 123 more".
std::string show_list(const std::vector<int>& numbers);

}  // namespace plait::base
