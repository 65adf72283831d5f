#include "plan/settings/raw_setting.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace plait::plan {
namespace {

// Shortens text so that it fits into a sentence.
std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 80;
  const std::string begin(text.substr(0, kMost));
  return text.size() > kMost ? begin + "..." : begin;
}

struct Show {
  std::string operator()(const std::string& text) const { return '"' + shown(text) + '"'; }
  std::string operator()(bool flag) const { return flag ? "true" : "false"; }
  std::string operator()(std::int64_t number) const { return std::to_string(number); }
  std::string operator()(const RawSetting::Entries&) const { return "a table"; }
  std::string operator()(const RawSetting::Unusable& value) const { return shown(value.what); }
};

std::optional<bool> parse_flag(std::string_view text) {
  constexpr std::array<std::string_view, 4> kOn = {"1", "true", "on", "yes"};
  constexpr std::array<std::string_view, 4> kOff = {"0", "false", "off", "no"};
  std::string word(text);
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (std::find(kOn.begin(), kOn.end(), word) != kOn.end()) return true;
  if (std::find(kOff.begin(), kOff.end(), word) != kOff.end()) return false;
  return std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

}  // namespace

std::string on_one_line(std::string text) {
  const auto is_control = [](unsigned char c) { return std::iscntrl(c) != 0; };
  std::replace_if(text.begin(), text.end(), is_control, '?');
  return text;
}

RawSetting::RawSetting(std::string name, std::string origin, std::string written, Value value,
                       bool is_variable)
    : name_(std::move(name)),
      origin_(std::move(origin)),
      written_(std::move(written)),
      value_(std::move(value)),
      is_variable_(is_variable) {}

RawSetting RawSetting::in_variable(const std::string& name, std::string text) {
  std::string written = base::sentence(name, '=', shown(text));
  return {name, name, std::move(written), std::move(text), true};
}

RawSetting RawSetting::in_file(const std::string& name, const Line& line, Value value) {
  std::string origin = base::sentence(line.file, ':', line.number);
  std::string written = base::sentence(origin, ": ", shown(name), " = ", std::visit(Show{}, value));
  return {name, std::move(origin), std::move(written), std::move(value), false};
}

bool RawSetting::flag(std::string_view refusal) const {
  if (const auto* flag = std::get_if<bool>(&value_)) return *flag;
  if (const auto* number = std::get_if<std::int64_t>(&value_); number && (*number | 1) == 1)
    return *number == 1;
  if (is_variable_) {
    if (const auto flag = parse_flag(text())) return *flag;
  }
  refuse(refusal);
}

std::int64_t RawSetting::whole(std::int64_t low, std::int64_t high) const {
  std::optional<std::int64_t> number;
  if (const auto* written = std::get_if<std::int64_t>(&value_)) number = *written;
  if (is_variable_) number = base::parse_int(text());
  if (!number || *number < low || *number > high)
    refuse(" is not a whole number from ", low, " to ", high);
  return *number;
}

bool RawSetting::is(std::string_view word) const {
  const auto* text = std::get_if<std::string>(&value_);
  return text != nullptr && *text == word;
}

bool RawSetting::is_whole() const {
  if (is_variable_) return base::parse_int(text()).has_value();
  return std::holds_alternative<std::int64_t>(value_);
}

const std::string& RawSetting::text() const {
  if (const auto* text = std::get_if<std::string>(&value_)) return *text;
  refuse(" is not a text in quotes");
}

RawSetting::Entries RawSetting::entries() const {
  if (const auto* entries = std::get_if<Entries>(&value_)) return *entries;
  if (!is_variable_) refuse(" is not a table");
  Entries entries;
  for (const std::string_view part : base::split(text(), ';')) {
    const std::string_view entry = trimmed(part);
    if (entry.empty()) continue;
    const std::size_t equals = std::min(entry.find('='), entry.size());
    const std::string name(trimmed(entry.substr(0, equals)));
    if (equals == entry.size()) refuse(": ", shown(entry), " has no =VALUE");
    const std::string_view value = trimmed(entry.substr(equals + 1));
    entries.push_back(RawSetting(name, name_, base::sentence(name_, ": ", shown(entry)),
                                 std::string(value), true));
  }
  return entries;
}

}  // namespace plait::plan
