// Reads the operators that a timeline contains. Every call leaves a mark that names its problem,
// with the rank's share of n or k.
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/check.h"
#include "cli/tune/problems.h"
#include "cli/values.h"
#include "plan/families.h"
#include "plan/weight_kind.h"

namespace plait::cli {
namespace {

constexpr const char* kMark = "call op=";

// The calls of each rank, in order.
using Calls = std::map<std::int64_t, std::vector<PlanKey>>;

Calls calls_of_ranks(const nlohmann::json& trace) {
  Calls ranks;
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    const std::string name = event.value("name", "");
    if (!name.starts_with(kMark)) continue;
    const PlanKey key =
        parse_plan_key(std::string_view(name).substr(std::string_view("call ").size()));
    PLAIT_CHECK(key.family == Family::operators, "plait records no calls of ",
                plan::call_name(key));
    ranks[event.value("pid", std::int64_t{0})].push_back(key);
  }
  return ranks;
}

Calls read_calls(const std::string& path) {
  std::ifstream file = open_input("--from", path);
  try {
    return calls_of_ranks(nlohmann::json::parse(file));
  } catch (const nlohmann::json::exception&) {
    base::fail(Code::invalid_argument, "--from ", path, " is not a timeline written by plait");
  } catch (const Error& error) {
    base::fail(error.code(), "--from ", path, ": ", error.what());
  }
}

// The calls of all ranks with one number are one call, in which each rank has its share. With
// several tensor-parallel groups, they are one call per group; all groups must have equal shares,
// and the call of one group stands for all.
PlanKey put_together(const Calls& ranks, std::size_t number, const std::string& path) {
  PlanKey key = ranks.begin()->second[number];
  const OperatorTraits& traits = traits_of(key.op);
  key.n = traits.shares_n ? 0 : key.n;
  key.k = traits.shares_k ? 0 : key.k;
  for (const auto& [rank, calls] : ranks) {
    const PlanKey& share = calls[number];
    PLAIT_CHECK(share.op == key.op && share.m == key.m, "--from ", path, ": call ", number + 1,
                " is ", name(key.op), " of ", key.m, " rows on rank ", ranks.begin()->first,
                " and ", name(share.op), " of ", share.m, " rows on rank ", rank);
    if (traits.shares_n) key.n += share.n;
    if (traits.shares_k) key.k += share.k;
  }
  const auto groups = static_cast<std::int64_t>(ranks.size()) / std::max(key.world, 1);
  if (groups <= 1 || !traits.communicates()) return key;
  const PlanKey& first = ranks.begin()->second[number];
  for (const auto& [rank, calls] : ranks) {
    PLAIT_CHECK(calls[number].n == first.n && calls[number].k == first.k, "--from ", path,
                ": groups of ", key.world, " ranks call ", name(key.op),
                " with uneven shares, which cannot be assigned to groups");
  }
  key.n /= traits.shares_n ? groups : 1;
  key.k /= traits.shares_k ? groups : 1;
  return key;
}

}  // namespace

std::vector<PlanKey> problems_in_trace(const std::string& path, const PlanKey& usual) {
  const Calls ranks = read_calls(path);
  PLAIT_CHECK(!ranks.empty(), "--from ", path, " has no call of an operator");
  const auto& [first, calls_of_first] = *ranks.begin();
  for (const auto& [rank, calls] : ranks) {
    PLAIT_CHECK(calls.size() == calls_of_first.size(), "--from ", path, ": rank ", rank, " has ",
                calls.size(), " calls and rank ", first, " has ", calls_of_first.size());
  }
  std::vector<PlanKey> problems;
  for (std::size_t number = 0; number < calls_of_first.size(); ++number) {
    PlanKey key = put_together(ranks, number, path);
    if (!traits_of(key.op).communicates()) continue;  // in layers; it has only one plan
    PLAIT_CHECK(ranks.size() % static_cast<std::size_t>(key.world) == 0, "--from ", path, " has ",
                ranks.size(), " ranks, and ", name(key.op), " was called by ", key.world);
    PLAIT_CHECK(is_packed_kind(key.weight) || plan::plain_dtype(key.weight), "--from ", path,
                ": w=", key.weight, " is not a weight");
    if (!key.link) key.link = usual.link;
    PLAIT_CHECK(!usual.link || *key.link == *usual.link, "--from ", path, ": ", name(key.op),
                " was called over an ", describe(*key.link), ", but --link is an ",
                describe(*usual.link));
    add_problem(problems, key);
  }
  PLAIT_CHECK(!problems.empty(), "--from ", path,
              " has no operator but matmul, which has one plan");
  return problems;
}

}  // namespace plait::cli
