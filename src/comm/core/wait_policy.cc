#include "comm/core/wait_policy.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/env.h"
#include "base/text.h"

namespace plait::comm {
namespace {

// A spinning rank does not poll its peers, and does not notice its deadline.
constexpr base::Nanoseconds kMostSpin = 10 * base::kMillisecond;

// The kernel repeats unacknowledged data after 0.2 s, 0.6 s and so on. A shorter silence means
// nothing.
constexpr base::Nanoseconds kLeastSilence = base::kSecond;
constexpr base::Nanoseconds kMostSilence = 3600 * base::kSecond;

}  // namespace

base::Nanoseconds left_of(base::Nanoseconds timeout, base::Nanoseconds began_at) {
  constexpr base::Nanoseconds kLeast = 10 * base::kMillisecond;
  return std::max(timeout - (base::now() - began_at), kLeast);
}

void read_wait_policy(std::string_view text, WaitPolicy& policy) {
  std::vector<std::string_view> given;
  for (const std::string_view part : base::split(text, ',')) {
    const auto equals = part.find('=');
    const std::string_view key = part.substr(0, equals);
    const auto value = equals == std::string_view::npos
                           ? std::nullopt
                           : base::parse_duration(part.substr(equals + 1));
    PLAIT_CHECK(value && (key == "spin" || key == "yield"), "PLAIT_WAIT=", text,
                " is not like \"spin=20us,yield=200us\"");
    PLAIT_CHECK(key != "spin" || *value <= kMostSpin, "PLAIT_WAIT=", text, " spins for ",
                base::show_duration(*value), "; a rank that spins sees no lost peer, so ",
                base::show_duration(kMostSpin), " is the most");
    PLAIT_CHECK(std::find(given.begin(), given.end(), key) == given.end(), "PLAIT_WAIT=", text,
                " says ", key, "= twice");
    given.push_back(key);
    (key == "spin" ? policy.spin : policy.yield) = *value;
  }
}

namespace {

std::optional<base::Nanoseconds> duration_from_environment(const char* name) {
  const auto text = base::env(name);
  if (!text) return std::nullopt;
  const auto duration = base::parse_duration(*text);
  PLAIT_CHECK(duration, name, "=", *text, " is not a duration such as ",
              base::kExamplesOfDurations);
  return duration;
}

}  // namespace

WaitPolicy wait_policy_from_environment() {
  WaitPolicy policy;
  if (const auto text = base::env("PLAIT_WAIT")) read_wait_policy(*text, policy);
  if (const auto timeout = duration_from_environment("PLAIT_TIMEOUT")) {
    PLAIT_CHECK(*timeout > 0, "PLAIT_TIMEOUT=", base::env("PLAIT_TIMEOUT").value_or(""),
                " leaves a rank no time to wait for another: say how long it may, like 60s");
    policy.timeout = *timeout;
    policy.connect_timeout = *timeout;
  }
  if (const auto lost_after = duration_from_environment("PLAIT_LOST_AFTER")) {
    PLAIT_CHECK(*lost_after >= kLeastSilence && *lost_after <= kMostSilence,
                "PLAIT_LOST_AFTER=", base::env("PLAIT_LOST_AFTER").value_or(""),
                " is not a duration from 1s to 1h");
    policy.lost_after = *lost_after;
  }
  return policy;
}

}  // namespace plait::comm
