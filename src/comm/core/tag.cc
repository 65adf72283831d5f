#include "plait/tag.h"

#include <sstream>

#include "comm/core/operation.h"

namespace plait {
namespace {

struct Names {
  std::string_view operation;
  std::array<std::string_view, 3> sizes;
};

constexpr std::string_view kShards = "shards";

// Indexed by Operation, up to the operators.
constexpr std::array<Names, 11> kNames = {{
    {"custom", {"m", "n", "k"}},
    {"barrier", {"elements", kShards, "root"}},
    {"broadcast", {"elements", kShards, "root"}},
    {"all_gather", {"elements", kShards, "root"}},
    {"reduce_scatter", {"elements", kShards, "root"}},
    {"all_reduce", {"elements", kShards, "root"}},
    {"all_to_all", {"elements between them", kShards, "root"}},
    {"all_to_all_rows", {"columns", "groups", "the way back"}},
    {"make_mailbox", {"slots", "slot bytes", "k"}},
    {"with_link", {"m", "n", "k"}},
    {"split", {"m", "n", "k"}},
}};

// The operators that are no Operator.
constexpr std::array<Names, 2> kUlysses = {{
    {"matmul_all_to_all", {"m", "n", "k"}},
    {"all_to_all_matmul", {"m", "n", "k"}},
}};

constexpr bool has_groups(Operation operation) {
  return operation == Operation::matmul_all_to_all || operation == Operation::all_to_all_matmul;
}

// The last bits of the plan say which call of the layer it is.
constexpr std::array<std::string_view, 4> kExpertsCalls = {
    "forward without gradients", "forward with gradients", "backward", "backward"};
constexpr Names kExperts = {"expert_parallel_mlp",
                            {"columns", "rows", "the fingerprint of ids and weights"}};

// Without a name of its own, what has the sizes of a product: an operator, or an unknown operation.
const Names& names(Operation operation) {
  if (operation == Operation::expert_parallel_mlp) return kExperts;
  const auto index = static_cast<std::size_t>(operation);
  if (has_groups(operation))
    return kUlysses[index - static_cast<std::size_t>(Operation::matmul_all_to_all)];
  return kNames[index < kNames.size() ? index : 0];
}

template <class Value>
std::string both(std::string_view field, const Value& a, const Value& b) {
  std::ostringstream text;
  text << field << ": " << a << " and " << b;
  return std::move(text).str();
}

// Compares the last sizes of two operators' tags, which must differ.
std::string last_difference(std::string_view field, const Tag& a, const Tag& b) {
  const auto size = [](const Tag& tag) { return tag.sizes[2] % kTagOut; };
  const auto out = [](const Tag& tag) {
    return name(static_cast<Dtype>(tag.sizes[2] % kTagBias / kTagOut));
  };
  const auto bias = [](const Tag& tag) { return tag.sizes[2] >= kTagBias ? "one" : "none"; };
  if (size(a) != size(b)) return both(field, size(a), size(b));
  if (out(a) != out(b)) return both("the dtype of out", out(a), out(b));
  return both("the bias", bias(a), bias(b));
}

}  // namespace

std::string_view name(Operation operation) {
  for (std::size_t i = 0; comm::is_operator(operation) && i < kOperatorTraits.size(); ++i) {
    if (comm::operation_of(static_cast<Operator>(i)) == operation) return kOperatorTraits[i].name;
  }
  return names(operation).operation;
}

std::string difference(const Tag& a, const Tag& b) {
  if (a.operation != b.operation) return both("the operator", name(a.operation), name(b.operation));
  if (a.dtype != b.dtype) return both("the dtype", name(a.dtype), name(b.dtype));
  if (a.wire != b.wire) return both("the wire", name(a.wire), name(b.wire));
  for (std::size_t i = 0; i < a.sizes.size(); ++i) {
    if (a.sizes[i] == b.sizes[i]) continue;
    // It is a fingerprint of the counts, which tells a reader nothing.
    if (names(a.operation).sizes[i] == kShards) return "the counts of the shards";
    const std::string_view field = names(a.operation).sizes[i];
    if (i == 2 && comm::is_operator(a.operation)) return last_difference(field, a, b);
    return both(field, a.sizes[i], b.sizes[i]);
  }
  // A tag has one fingerprint of these.
  if (a.plan != b.plan) {
    if (has_groups(a.operation)) return "the plan or the groups of columns";
    if (a.operation != Operation::expert_parallel_mlp) return "the plan";
    if (a.plan >> 2 != b.plan >> 2) return "the layer";
    return both("the call", kExpertsCalls[a.plan % 4], kExpertsCalls[b.plan % 4]);
  }
  if (a.call != b.call) return both("the order of calls", a.call, b.call);
  return both("the chunk", a.chunk, b.chunk);
}

}  // namespace plait
