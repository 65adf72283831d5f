// Which operators a timeline has calls of: every call leaves a mark that names its problem, with
// the share of n or k that the rank has.
#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/check.h"
#include "cli/tune/problems.h"
#include "ops/shapes.h"

namespace plait::cli {
namespace {

using Json = nlohmann::json;

constexpr const char* kMark = "call op=";

// By rank: what it has called, each once, in the order of the first calls.
std::map<std::int64_t, std::vector<std::string>> calls_of_ranks(const Json& trace) {
  std::map<std::int64_t, std::vector<std::string>> ranks;
  for (const Json& event : trace.at("traceEvents")) {
    const std::string name = event.value("name", "");
    if (!name.starts_with(kMark)) continue;
    auto& calls = ranks[event.value("pid", std::int64_t{0})];
    if (std::find(calls.begin(), calls.end(), name) == calls.end()) calls.push_back(name);
  }
  return ranks;
}

PlanKey key_of_call(const std::string& mark) {
  return parse_plan_key(std::string_view(mark).substr(std::string_view("call ").size()));
}

}  // namespace

std::vector<PlanKey> problems_in_trace(const std::string& path, const PlanKey& usual) {
  std::ifstream file(path);
  PLAIT_CHECK(file.is_open(), "--from ", path, " can't be read");
  std::map<std::int64_t, std::vector<std::string>> ranks;
  try {
    ranks = calls_of_ranks(Json::parse(file));
  } catch (const Json::exception&) {
    base::fail(Code::invalid_argument, "--from ", path, " is no timeline that plait wrote");
  }
  PLAIT_CHECK(!ranks.empty(), "--from ", path, " has no call of an operator");
  const auto& first = ranks.begin()->second;
  std::vector<PlanKey> problems;
  for (std::size_t i = 0; i < first.size(); ++i) {
    PlanKey key = key_of_call(first[i]);
    PLAIT_CHECK(static_cast<std::size_t>(key.world) == ranks.size(), "--from ", path, " is of ",
                ranks.size(), " ranks, and ", name(key.op), " was called by ", key.world);
    const ops::Split split = ops::split_of(key.op);
    key.n = split == ops::Split::n ? 0 : key.n;
    key.k = split == ops::Split::k ? 0 : key.k;
    for (const auto& [rank, calls] : ranks) {
      PLAIT_CHECK(i < calls.size(), "--from ", path, ": rank ", rank, " has fewer calls than rank ",
                  ranks.begin()->first);
      const PlanKey share = key_of_call(calls[i]);
      if (split == ops::Split::n) key.n += share.n;
      if (split == ops::Split::k) key.k += share.k;
    }
    if (!key.link) key.link = usual.link;
    key.transport = usual.transport;
    add_problem(problems, key);
  }
  return problems;
}

}  // namespace plait::cli
