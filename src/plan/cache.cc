#include "plan/cache.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace plait::plan {
namespace {

constexpr std::string_view kHead = "plait plans 2";
constexpr std::string_view kMachine = "machine ";
constexpr std::string_view kBar = " | ";

std::int64_t read_nanoseconds(std::string_view text) {
  const auto value = base::parse_int(text);
  PLAIT_CHECK(value && *value >= 0, '"', text, "\" is not a number of nanoseconds");
  return *value;
}

void check_followed(Operator op, const Plan& plan) {
  PLAIT_CHECK(followed_by(op, plan) == plan, name(op), " cannot run the plan \"", name(plan), '"');
}

// Parses the four columns of a line.
std::pair<std::string, PlanCache::Entry> read_entry(std::string_view line) {
  std::array<std::string_view, 4> columns;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const std::size_t end = line.find(kBar);
    PLAIT_CHECK((end == std::string_view::npos) == (i + 1 == columns.size()), "it does not have ",
                columns.size(), " columns");
    columns[i] = line.substr(0, end);
    line.remove_prefix(std::min(line.size(), columns[i].size() + kBar.size()));
  }
  const PlanKey key = parse_plan_key(columns[0]);
  PLAIT_CHECK(name(key) == columns[0], "this problem must be written as \"", name(key), '"');
  const PlanCache::Entry entry = {.plan = parse_plan(columns[1]),
                                  .nanoseconds = read_nanoseconds(columns[2]),
                                  .serial = read_nanoseconds(columns[3])};
  check_followed(key.op, entry.plan);
  return {std::string(columns[0]), entry};
}

}  // namespace

PlanCache PlanCache::parse(std::string_view text) {
  const auto lines = base::split(text, '\n');
  PLAIT_CHECK(lines[0] == kHead, "plans: the first line must be \"", kHead, "\", not \"",
              lines[0].substr(0, 40), '"');
  PLAIT_CHECK(
      lines.size() > 1 && lines[1].starts_with(kMachine) && lines[1].size() > kMachine.size(),
      "plans: the second line must name their machine: \"machine ...\"");
  PLAIT_CHECK(lines.back().empty(), "plans: the last line is incomplete");
  PlanCache cache{std::string(lines[1].substr(kMachine.size()))};
  for (std::size_t i = 2; i + 1 < lines.size(); ++i) {
    try {
      auto [key, entry] = read_entry(lines[i]);
      PLAIT_CHECK(cache.entries_.emplace(std::move(key), entry).second,
                  "its problem has a line above already");
    } catch (const Error& error) {
      base::fail(Code::invalid_argument, "plans, line ", i + 1, ": ", error.what());
    }
  }
  return cache;
}

std::string PlanCache::text() const {
  std::string text = base::sentence(kHead, '\n', kMachine, machine_, '\n');
  for (const auto& [key, entry] : entries_) {
    text += base::sentence(key, kBar, name(entry.plan), kBar, entry.nanoseconds, kBar, entry.serial,
                           '\n');
  }
  return text;
}

void PlanCache::add(const PlanKey& key, const Entry& entry) {
  check_followed(key.op, entry.plan);
  const std::string text = name(key);
  PLAIT_CHECK(name(parse_plan_key(text)) == text, "plans: the problem ", text,
              " cannot be stored as text");
  entries_[text] = entry;
}

void PlanCache::merge(const PlanCache& other) {
  entries_.insert(other.entries_.begin(), other.entries_.end());
}

std::optional<Plan> PlanCache::find(const PlanKey& key) const {
  const auto found = entries_.find(name(key));
  if (found == entries_.end()) return std::nullopt;
  return found->second.plan;
}

std::size_t KeyHash::operator()(const PlanKey& key) const {
  std::size_t all = std::hash<std::string>()(key.weight);
  for (const std::int64_t one : {key.m, key.n, key.k, static_cast<std::int64_t>(key.op)})
    all = all * 1'000'003 + static_cast<std::size_t>(one);
  return all;
}

}  // namespace plait::plan
