#include "plan/families.h"

#include <algorithm>
#include <array>
#include <string>

namespace plait::plan {
namespace {

constexpr std::array<FamilyCall, 6> kCalls = {
    {{"matmul_all_to_all", Family::ulysses, Operator::matmul_reduce_scatter},
     {"all_to_all_matmul", Family::ulysses, Operator::all_gather_matmul},
     {"matmul_all_gather_columns", Family::columns, Operator::matmul_reduce_scatter},
     {"all_gather_columns_matmul", Family::columns, Operator::all_gather_matmul},
     {"replicated_experts", Family::experts, Operator::matmul_reduce_scatter},
     {"experts", Family::experts, Operator::all_gather_matmul}}};

template <class IsIt>
const FamilyCall* find_call(IsIt&& is_it) {
  const auto* const found = std::find_if(kCalls.begin(), kCalls.end(), is_it);
  return found == kCalls.end() ? nullptr : found;
}

}  // namespace

std::span<const FamilyCall> family_calls() { return kCalls; }

const FamilyCall* find_family_call(std::string_view spelling) {
  std::string word(spelling);
  std::replace(word.begin(), word.end(), '-', '_');
  return find_call([&](const FamilyCall& one) { return one.name == word; });
}

const FamilyCall* find_family_call(Family family, bool product_first) {
  return find_call([&](const FamilyCall& one) {
    return one.family == family && is_compute_first(one.like) == product_first;
  });
}

std::string_view call_name(const PlanKey& key) {
  const FamilyCall* const call = find_family_call(key.family, is_compute_first(key.op));
  return call == nullptr ? name(key.op) : call->name;
}

bool has_schedule(const PlanKey& key, Schedule schedule) {
  if (key.family == Family::experts && schedule == Schedule::pipelined) return false;
  return plait::has_schedule(key.op, schedule);
}

Plan followed_by(const PlanKey& key, Plan plan) {
  if (key.family == Family::experts) {
    const bool is_serial = plan.schedule == Schedule::serial;
    return {.schedule = is_serial ? Schedule::serial : Schedule::fused};
  }
  if (key.family == Family::columns) plan.axis = Axis::natural;
  return plait::followed_by(key.op, plan);
}

}  // namespace plait::plan
