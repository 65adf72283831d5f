#include "cli/values.h"

#include "base/check.h"
#include "base/text.h"

namespace plait::cli {
namespace {

constexpr std::int64_t kMostRepetitions = 100000;
constexpr double kMostSeconds = 3600;

}  // namespace

std::int64_t read_number(std::string_view option, std::string_view text, std::int64_t least,
                         std::int64_t most) {
  const auto number = base::parse_int(text);
  PLAIT_CHECK(number && *number >= least && *number <= most, option, " ", text,
              " is not a whole number from ", least, " to ", most);
  return *number;
}

std::vector<std::string> read_list(std::string_view option, const std::string& text) {
  std::vector<std::string> items;
  for (const auto item : base::split(text, ',')) {
    PLAIT_CHECK(!item.empty(), option, " ", text, " has an empty place between commas");
    items.emplace_back(item);
  }
  return items;
}

Dtype read_dtype(std::string_view option, const std::string& text) {
  const auto dtype = parse_dtype(text);
  PLAIT_CHECK(dtype && *dtype != Dtype::s8, option, " ", text, " is none of f32, bf16 and f16");
  return *dtype;
}

WeightLayout read_layout(const std::string& text) {
  if (text == name(WeightLayout::out_in)) return WeightLayout::out_in;
  PLAIT_CHECK(text == name(WeightLayout::in_out), "--layout ", text,
              " is neither out_in nor in_out");
  return WeightLayout::in_out;
}

Effort read_effort(const std::string& repeat, const std::string& seconds) {
  Effort effort;
  if (!repeat.empty())
    effort.repetitions = static_cast<int>(read_number("--repeat", repeat, 1, kMostRepetitions));
  const auto each = base::parse_number(seconds);
  PLAIT_CHECK(each && *each > 0 && *each <= kMostSeconds, "--seconds ", seconds,
              " is not a number above 0 and up to ", kMostSeconds);
  effort.each = static_cast<base::Nanoseconds>(*each * base::kSecond);
  return effort;
}

void check_distinct(const std::vector<std::pair<const char*, std::string>>& files) {
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      PLAIT_CHECK(files[i].second.empty() || files[i].second != files[j].second, files[j].first,
                  " and ", files[i].first, " both name ", files[i].second);
    }
  }
}

}  // namespace plait::cli
