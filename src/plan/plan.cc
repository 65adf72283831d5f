#include "plait/plan.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/text.h"

namespace plait {
namespace {

constexpr std::array<std::string_view, 3> kSchedules = {"serial", "pipelined", "fused"};
constexpr std::array<std::string_view, 3> kAxes = {"natural", "rows", "columns"};

constexpr std::int64_t kMostChunk = std::int64_t{1} << 40;
constexpr std::int64_t kLongestPoll = 1'000'000;  // a second

// The schedule whose plans have this number; nullopt: plans of any schedule have it.
std::optional<Schedule> owner_of(std::string_view key) {
  if (key == "poll") return std::nullopt;
  return key == "chunk" ? Schedule::fused : Schedule::pipelined;
}

bool means_something(std::string_view key, Schedule schedule) {
  return owner_of(key).value_or(schedule) == schedule;
}

// A number of a plan, its name in the text, and how to read and set it.
struct Number {
  std::string_view word;
  std::int64_t (*get)(const Plan&);
  void (*set)(Plan&, std::int64_t);
};

constexpr std::array<Number, 5> kNumbers = {{
    {"parts", [](const Plan& plan) -> std::int64_t { return plan.parts; },
     [](Plan& plan, std::int64_t value) { plan.parts = static_cast<int>(value); }},
    {"first", [](const Plan& plan) -> std::int64_t { return plan.first; },
     [](Plan& plan, std::int64_t value) { plan.first = static_cast<int>(value); }},
    {"last", [](const Plan& plan) -> std::int64_t { return plan.last; },
     [](Plan& plan, std::int64_t value) { plan.last = static_cast<int>(value); }},
    {"chunk", [](const Plan& plan) { return plan.chunk; },
     [](Plan& plan, std::int64_t value) { plan.chunk = value; }},
    {"poll", [](const Plan& plan) { return plan.poll; },
     [](Plan& plan, std::int64_t value) { plan.poll = value; }},
}};

template <class Names>
int index_of(const Names& names, std::string_view word) {
  const auto* const found = std::find(names.begin(), names.end(), word);
  return found == names.end() ? -1 : static_cast<int>(found - names.begin());
}

void read_word(Plan& plan, std::string_view word) {
  const std::size_t equals = word.find('=');
  PLAIT_CHECK(equals != std::string_view::npos, "plan: ", word,
              " is neither a schedule (serial, pipelined, fused) nor NAME=VALUE");
  const std::string_view key = word.substr(0, equals);
  const std::string_view value = word.substr(equals + 1);
  if (key == "axis") {
    const int axis = index_of(kAxes, value);
    PLAIT_CHECK(axis >= 0, "plan: ", word, " is not an axis; the axes are rows, columns, natural");
    plan.axis = static_cast<Axis>(axis);
    return;
  }
  const auto* const number = std::find_if(kNumbers.begin(), kNumbers.end(),
                                          [&](const Number& one) { return one.word == key; });
  PLAIT_CHECK(number != kNumbers.end(), "plan: unknown name ", key,
              "; known are parts, axis, first, last, chunk, poll");
  const auto parsed = base::parse_int(value);
  PLAIT_CHECK(parsed && *parsed >= 0 && *parsed <= kMostChunk, "plan: ", word,
              " is not a whole number of 0 or more");
  // Values too large for an int are far out of range, so the limit does not change the result.
  number->set(plan, std::min<std::int64_t>(*parsed, key == "chunk" ? kMostChunk : INT32_MAX));
}

}  // namespace

std::string_view name(Schedule schedule) { return kSchedules[static_cast<std::size_t>(schedule)]; }
std::string_view name(Axis axis) { return kAxes[static_cast<std::size_t>(axis)]; }

std::string name(const Plan& plan) {
  std::string text(name(plan.schedule));
  const Plan usual;
  if (plan.axis != usual.axis && means_something("axis", plan.schedule))
    text += base::sentence(" axis=", name(plan.axis));
  for (const Number& number : kNumbers) {
    if (!means_something(number.word, plan.schedule)) continue;
    // The number of parts is always written: it is the most important number of a pipelined plan.
    const bool is_asked = number.word == "parts" && plan.schedule == Schedule::pipelined;
    if (is_asked || number.get(plan) != number.get(usual))
      text += base::sentence(' ', number.word, '=', number.get(plan));
  }
  return text;
}

Plan parse_plan(std::string_view text) {
  Plan plan;
  bool has_schedule = false;
  std::vector<std::string_view> known;
  for (const std::string_view word : base::split(text, ' ')) {
    if (word.empty()) continue;
    const std::string_view key = word.substr(0, word.find('='));
    PLAIT_CHECK(std::find(known.begin(), known.end(), key) == known.end(), "plan: \"", text,
                "\" contains ", key, " more than once");
    known.push_back(key);
    const int schedule = index_of(kSchedules, word);
    if (schedule < 0) {
      read_word(plan, word);
      continue;
    }
    PLAIT_CHECK(!has_schedule, "plan: \"", text, "\" has two schedules; a plan has one");
    has_schedule = true;
    plan.schedule = static_cast<Schedule>(schedule);
  }
  PLAIT_CHECK(has_schedule, "plan: \"", text,
              "\" has no schedule; the schedules are serial, pipelined, fused");
  for (const std::string_view key : known) {
    if (index_of(kSchedules, key) >= 0 || means_something(key, plan.schedule)) continue;
    base::fail(Code::invalid_argument, "plan: \"", text, "\": only ",
               name(owner_of(key).value_or(plan.schedule)), " plans have ", key);
  }
  check(plan, "plan");
  return plan;
}

void check(const Plan& plan, std::string_view caller) {
  const auto refuse_unless = [&](bool holds, std::string_view what, std::int64_t value,
                                 std::string_view range) {
    PLAIT_CHECK(holds, caller, ": ", what, "=", value, " is not ", range);
  };
  PLAIT_CHECK(plan.schedule <= Schedule::fused, caller,
              ": the plan's schedule has the unknown value ", static_cast<int>(plan.schedule));
  PLAIT_CHECK(plan.axis <= Axis::columns, caller, ": the plan's axis has the unknown value ",
              static_cast<int>(plan.axis));
  refuse_unless(plan.parts >= 1 && plan.parts <= kMostParts, "parts", plan.parts,
                "between 1 and 64");
  refuse_unless(plan.first >= 1 && plan.first <= 1000, "first", plan.first,
                "between 1 and 1000 percent");
  refuse_unless(plan.last >= 1 && plan.last <= 1000, "last", plan.last,
                "between 1 and 1000 percent");
  refuse_unless(plan.chunk >= 0 && plan.chunk <= kMostChunk, "chunk", plan.chunk,
                "between 0 and 2^40");
  refuse_unless(plan.poll >= 0 && plan.poll <= kLongestPoll, "poll", plan.poll,
                "between 0 and 1000000 microseconds");
}

std::uint32_t fingerprint(const Plan& plan) {
  std::uint32_t hash = 0x811c9dc5U;  // FNV-1a
  for (const char letter : name(plan)) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x01000193U;
  }
  return hash;
}

Plan followed_by(Operator op, Plan plan) {
  if (!has_schedule(op, plan.schedule)) return {.schedule = Schedule::serial};
  // The columns of X are the k of the product, so the product of half of them is not half of the
  // result.
  const bool cuts_k = plan.axis == Axis::columns && !is_compute_first(op);
  if (plan.schedule == Schedule::pipelined && cuts_k) plan.axis = Axis::natural;
  return plan;
}

PlanSource::~PlanSource() = default;
void PlanSource::took(const PlanKey& /*key*/, const Plan& /*plan*/,
                      std::int64_t /*nanoseconds*/) const {}

std::optional<PlanReason> PlanSource::reason(const PlanKey& /*key*/) const { return std::nullopt; }

Plan default_plan(Operator op) {
  return {.schedule = has_schedule(op, Schedule::fused) ? Schedule::fused : Schedule::serial};
}

}  // namespace plait
