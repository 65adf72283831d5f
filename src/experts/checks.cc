#include "experts/checks.h"

#include <cmath>
#include <string>

#include "base/check.h"
#include "base/parallel.h"
#include "comm/flow/counted_rows.h"
#include "experts/activation.h"
#include "tensor/apart.h"
#include "tensor/validate.h"

namespace plait::experts {
namespace {

constexpr std::int64_t kMostColumns = std::int64_t{1} << 24;

bool is_number(Dtype dtype) {
  return dtype == Dtype::f32 || dtype == Dtype::bf16 || dtype == Dtype::f16;
}

void check_number(Dtype dtype, const char* what) {
  PLAIT_CHECK(is_number(dtype), kLayer, ": ", what, " is ",
              dtype == Dtype::s8 ? std::string(name(dtype)) : std::string("no dtype"),
              "; it can be f32, bf16 or f16");
}

void check_size(std::int64_t value, std::int64_t most, const char* what) {
  PLAIT_CHECK(value >= 1 && value <= most, kLayer, ": ", what, " is ", value, "; it can be 1 to ",
              most);
}

struct Wanted {
  const char* name;
  std::int64_t count;  // the rank's experts
  std::int64_t n;
  std::int64_t k;
};

void check_weights(std::span<const Weight> weights, const Wanted& wanted, const WeightKind& kind,
                   int rank) {
  PLAIT_CHECK(std::ssize(weights) == wanted.count, kLayer, ": rank ", rank, " gives ",
              weights.size(), " weights `", wanted.name, "` for its ", wanted.count, " experts");
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Weight& weight = weights[i];
    PLAIT_CHECK(weight.kind() == kind, kLayer, ": rank ", rank, "'s weight `", wanted.name, "` ", i,
                " is ", name(weight.kind()), " but the layer was made for ", name(kind));
    PLAIT_CHECK(weight.n() == wanted.n && weight.k() == wanted.k, kLayer, ": rank ", rank,
                "'s weight `", wanted.name, "` ", i, " has ", weight.k(), " inputs and ",
                weight.n(), " outputs; it needs ", wanted.k, " and ", wanted.n);
  }
}

void check_biases(std::span<const ConstTensorView> biases, const Wanted& wanted, int rank) {
  if (biases.empty()) return;
  PLAIT_CHECK(std::ssize(biases) == wanted.count, kLayer, ": rank ", rank, " gives ", biases.size(),
              " biases of `", wanted.name, "` for its ", wanted.count, " experts");
  for (std::size_t i = 0; i < biases.size(); ++i) {
    const std::string which = base::sentence(kLayer, ": the bias of `", wanted.name, "` ", i);
    tensor::validate_on_cpu(biases[i], which);
    PLAIT_CHECK(biases[i].rows == 1 && biases[i].cols == wanted.n && is_number(biases[i].dtype),
                which, " is ", biases[i].rows, " x ", biases[i].cols, " ", name(biases[i].dtype),
                "; it must be 1 x ", wanted.n);
  }
}

void check_rows(const ExpertsForward& call, const ExpertsDesc& desc) {
  tensor::validate_on_cpu(call.x, base::sentence(kLayer, ": x"));
  tensor::validate_on_cpu(call.out, base::sentence(kLayer, ": out"));
  PLAIT_CHECK(call.x.cols == desc.hidden && call.out.cols == desc.hidden, kLayer, ": x has ",
              call.x.cols, " columns and out ", call.out.cols, "; both must have ", desc.hidden);
  PLAIT_CHECK(call.x.rows == call.out.rows, kLayer, ": x has ", call.x.rows, " rows and out ",
              call.out.rows);
  PLAIT_CHECK(call.x.rows <= comm::kMostRows / desc.top, kLayer, ": x has ", call.x.rows, " rows");
  PLAIT_CHECK(call.x.rows == 0 || (call.x.dtype == desc.dtype && call.out.dtype == desc.out),
              kLayer, ": x is ", name(call.x.dtype), " and out ", name(call.out.dtype),
              " but the layer was made for ", name(desc.dtype), " and ", name(desc.out));
  PLAIT_CHECK(tensor::are_apart(call.out, call.x), kLayer, ": out overlaps x");
}

void check_slots(const ExpertsForward& call, const ExpertsDesc& desc, int rank) {
  const std::int64_t slots = call.x.rows * desc.top;
  PLAIT_CHECK(std::ssize(call.ids) == slots && std::ssize(call.weights) == slots, kLayer, ": rank ",
              rank, " gives ", call.ids.size(), " ids and ", call.weights.size(), " weights for ",
              call.x.rows, " rows of ", desc.top, " slots");
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    const std::int64_t id = call.ids[static_cast<std::size_t>(slot)];
    PLAIT_CHECK(id >= -1 && id < desc.experts, kLayer, ": rank ", rank, "'s row ", slot / desc.top,
                " has the expert ", id, " in slot ", slot % desc.top, "; it can be -1, or 0 to ",
                desc.experts - 1);
  }
}

}  // namespace

void check(const ExpertsDesc& desc, const ExpertsOptions& options, Caller caller) {
  check_size(desc.hidden, kMostColumns, "hidden");
  check_size(desc.inner, kMostColumns, "inner");
  check_size(desc.experts, kMostExperts, "experts");
  check_size(desc.top, kMostExpertsOfARow, "top");
  check_number(desc.dtype, "dtype");
  check_number(desc.out, "out");
  check_number(desc.wire, "wire");
  PLAIT_CHECK(desc.weight.scheme || is_number(desc.weight.dtype), kLayer,
              ": a weight can be f32, bf16, f16 or quantised");
  PLAIT_CHECK(std::isfinite(desc.alpha) && desc.limit > 0, kLayer, ": alpha is ", desc.alpha,
              " and limit ", desc.limit, "; alpha must be finite, and limit above 0");
  PLAIT_CHECK(options.schedule != Schedule::pipelined, kLayer,
              ": there is no pipelined schedule; it can be serial or fused");
  base::check_threads(options.threads, kLayer);
  PLAIT_CHECK(desc.ranks.empty() || std::ssize(desc.ranks) == desc.experts, kLayer, ": ",
              desc.ranks.size(), " ranks are given for ", desc.experts, " experts");
  for (std::size_t expert = 0; expert < desc.ranks.size(); ++expert) {
    PLAIT_CHECK(desc.ranks[expert] >= 0 && desc.ranks[expert] < caller.world, kLayer, ": expert ",
                expert, " is on rank ", desc.ranks[expert], " of ", caller.world);
  }
}

void check(const ExpertsForward& call, const ExpertsDesc& desc, const Placement& placement,
           Caller caller) {
  check_rows(call, desc);
  check_slots(call, desc, caller.rank);
  const auto own = std::ssize(placement.experts_of(caller.rank));
  const Wanted up = {
      .name = "up", .count = own, .n = outputs_of(desc.activation, desc.inner), .k = desc.hidden};
  const Wanted down = {.name = "down", .count = own, .n = desc.hidden, .k = desc.inner};
  check_weights(call.up, up, desc.weight, caller.rank);
  check_weights(call.down, down, desc.weight, caller.rank);
  check_biases(call.up_biases, up, caller.rank);
  check_biases(call.down_biases, down, caller.rank);
}

}  // namespace plait::experts
