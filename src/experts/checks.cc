#include "experts/checks.h"

#include <cmath>
#include <string>

#include "base/check.h"
#include "base/parallel.h"
#include "experts/activation.h"
#include "experts/dispatch.h"
#include "plait/packed_weight.h"
#include "quant/scheme.h"
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

// Runs a check that says what is wrong with one of many operands. Its sentence is built only then.
template <class Check>
void check_numbered(const char* what, const char* name, std::size_t number, const Check& check) {
  try {
    check();
  } catch (const Error& error) {
    base::fail(error.code(), kLayer, ": ", what, " `", name, "` ", number, error.what());
  }
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
    check_numbered("the weight", wanted.name, i, [&] {
      if (weight.is_packed()) {
        PLAIT_CHECK(weight.packed().bytes() > 0, " has been moved to another PackedWeight");
      } else {
        tensor::validate_on_cpu(weight.view().view, "");
        quant::check_layout(weight.layout(), "");
      }
    });
  }
}

void check_biases(std::span<const ConstTensorView> biases, const Wanted& wanted, int rank) {
  if (biases.empty()) return;
  PLAIT_CHECK(std::ssize(biases) == wanted.count, kLayer, ": rank ", rank, " gives ", biases.size(),
              " biases of `", wanted.name, "` for its ", wanted.count, " experts");
  for (std::size_t i = 0; i < biases.size(); ++i) {
    const ConstTensorView& bias = biases[i];
    check_numbered("the bias of", wanted.name, i, [&] {
      tensor::validate_on_cpu(bias, "");
      PLAIT_CHECK(bias.rows == 1 && bias.cols == wanted.n && is_number(bias.dtype), " is ",
                  bias.rows, " x ", bias.cols, " ", name(bias.dtype), "; it must be 1 x ",
                  wanted.n);
    });
  }
}

void check_x(const ExpertsForward& call, const ExpertsDesc& desc, int rank) {
  tensor::validate_on_cpu(call.x, base::sentence(kLayer, ": x"));
  PLAIT_CHECK(call.x.cols == desc.hidden, kLayer, ": rank ", rank, "'s x has ", call.x.cols,
              " columns; it must have ", desc.hidden);
  const std::int64_t most = kMostSlots / (desc.top * desc.parts);
  PLAIT_CHECK(call.x.rows <= most, kLayer, ": rank ", rank, "'s x has ", call.x.rows,
              " rows; it can have ", most);
  PLAIT_CHECK(call.x.rows == 0 || call.x.dtype == desc.dtype, kLayer, ": rank ", rank, "'s x is ",
              name(call.x.dtype), " but the layer was made for ", name(desc.dtype));
}

// A result beside x, as large as x, or a gradient.
struct Beside {
  const char* name;
  Dtype dtype;
};

void check_beside(const ConstTensorView& view, const ExpertsForward& call, const Beside& what) {
  tensor::validate_on_cpu(view, base::sentence(kLayer, ": ", what.name));
  PLAIT_CHECK(view.rows == call.x.rows && view.cols == call.x.cols, kLayer, ": x is ", call.x.rows,
              " x ", call.x.cols, " and ", what.name, " ", view.rows, " x ", view.cols);
  PLAIT_CHECK(view.rows == 0 || view.dtype == what.dtype, kLayer, ": ", what.name, " is ",
              name(view.dtype), "; it must be ", name(what.dtype));
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

// The operands that forward and backward have.
struct OwnSizes {
  Wanted up, down;
};

OwnSizes own_sizes(const ExpertsDesc& desc, const Placement& placement, int rank) {
  const auto own = std::ssize(placement.experts_of(rank));
  return {.up = {.name = "up",
                 .count = own,
                 .n = outputs_of(desc.activation, desc.inner),
                 .k = desc.hidden},
          .down = {.name = "down", .count = own, .n = desc.hidden, .k = desc.inner}};
}

void check_operands(const ExpertsForward& call, const ExpertsDesc& desc, const OwnSizes& own,
                    int rank) {
  check_x(call, desc, rank);
  check_slots(call, desc, rank);
  check_weights(call.up, own.up, desc.weight, rank);
  check_weights(call.down, own.down, desc.weight, rank);
  check_biases(call.up_biases, own.up, rank);
  check_biases(call.down_biases, own.down, rank);
}

void check_turned(std::span<const Weight> turned, const Wanted& of, const char* name,
                  const WeightKind& kind, int rank) {
  if (turned.empty()) {
    PLAIT_CHECK(!kind.is_packed || of.count == 0, kLayer, ": packed weights need `", name, "`");
    return;
  }
  check_weights(turned, {.name = name, .count = of.count, .n = of.k, .k = of.n}, kind, rank);
}

void check_apart(const TensorView& grad, const char* name, const ConstTensorView& other,
                 const char* what) {
  PLAIT_CHECK(tensor::are_apart(grad, other), kLayer, ": ", name, " overlaps ", what);
}

// A gradient is written while these are read.
void check_apart(const TensorView& grad, const char* name, const ExpertsBackward& call) {
  check_apart(grad, name, call.forward.x, "x");
  check_apart(grad, name, call.grad_out, "grad_out");
  for (const auto& weights :
       {call.forward.up, call.forward.down, call.turned_up, call.turned_down}) {
    for (const Weight& weight : weights) {
      if (!weight.is_packed()) check_apart(grad, name, weight.view().view, "a weight");
    }
  }
}

// Views of n by k, or of k by n where the weight lies so; biases have no weights.
void check_gradients(std::span<const TensorView> grads, const Wanted& wanted,
                     std::span<const Weight> weights, const ExpertsBackward& call) {
  const char* const name = wanted.name;
  if (grads.empty()) return;
  PLAIT_CHECK(std::ssize(grads) == wanted.count, kLayer, ": ", grads.size(), " views of ", name,
              " for ", wanted.count, " experts");
  const std::string which = base::sentence(kLayer, ": ", name);
  for (std::size_t i = 0; i < grads.size(); ++i) {
    const TensorView& grad = grads[i];
    tensor::validate_on_cpu(grad, which);
    const bool is_turned = !weights.empty() && layout_of(weights[i]) == WeightLayout::in_out;
    const std::int64_t rows = is_turned ? wanted.k : wanted.n;
    const std::int64_t cols = is_turned ? wanted.n : wanted.k;
    PLAIT_CHECK(grad.rows == rows && grad.cols == cols && is_number(grad.dtype), kLayer, ": ", name,
                " is ", grad.rows, " x ", grad.cols, " ", plait::name(grad.dtype), "; it must be ",
                rows, " x ", cols);
    check_apart(grad, name, call);
  }
}

}  // namespace

void check(const ExpertsDesc& desc, const ExpertsOptions& options, Caller caller) {
  check_size(desc.hidden, kMostColumns, "hidden");
  check_size(desc.inner, kMostColumns, "inner");
  check_size(desc.experts, kMostExperts, "experts");
  check_size(desc.top, kMostExpertsOfARow, "top");
  check_size(desc.parts, kMostPartsOfAnExpert, "parts");
  const std::int64_t all = desc.experts * desc.parts;
  PLAIT_CHECK(all <= kMostExperts, kLayer, ": ", desc.experts, " experts in ", desc.parts,
              " parts are ", all, "; there can be ", kMostExperts);
  check_number(desc.dtype, "dtype");
  check_number(desc.out, "out");
  check_number(desc.wire, "wire");
  PLAIT_CHECK(desc.weight.scheme || is_number(desc.weight.dtype), kLayer,
              ": a weight can be f32, bf16, f16 or quantised");
  PLAIT_CHECK(std::isfinite(desc.alpha) && std::isfinite(desc.added) && desc.limit > 0, kLayer,
              ": alpha is ", desc.alpha, ", added ", desc.added, " and limit ", desc.limit,
              "; alpha and added must be finite, and limit above 0");
  PLAIT_CHECK(options.schedule != Schedule::pipelined, kLayer,
              ": there is no pipelined schedule; it can be serial or fused");
  base::check_threads(options.threads, kLayer);
  const char* const kind = desc.parts == 1 ? "expert" : "part";
  PLAIT_CHECK(desc.ranks.empty() || std::ssize(desc.ranks) == all, kLayer, ": ", desc.ranks.size(),
              " ranks are given for ", all, ' ', kind, 's');
  for (std::size_t at = 0; at < desc.ranks.size(); ++at) {
    PLAIT_CHECK(desc.ranks[at] >= 0 && desc.ranks[at] < caller.world, kLayer, ": ", kind, ' ', at,
                " is on rank ", desc.ranks[at], " of ", caller.world);
  }
}

void check(const ExpertsForward& call, const ExpertsDesc& desc, const Placement& placement,
           Caller caller) {
  check_operands(call, desc, own_sizes(desc, placement, caller.rank), caller.rank);
  check_beside(call.out, call, {.name = "out", .dtype = desc.out});
  PLAIT_CHECK(tensor::are_apart(call.out, call.x), kLayer, ": out overlaps x");
}

void check(const ExpertsBackward& call, const ExpertsDesc& desc, const Placement& placement,
           Caller caller) {
  const OwnSizes own = own_sizes(desc, placement, caller.rank);
  check_operands(call.forward, desc, own, caller.rank);
  check_beside(call.grad_out, call.forward, {.name = "grad_out", .dtype = desc.dtype});
  if (call.grad_x.data != nullptr) {
    check_number(call.grad_x.dtype, "grad_x");
    check_beside(call.grad_x, call.forward, {.name = "grad_x", .dtype = call.grad_x.dtype});
    check_apart(call.grad_x, "grad_x", call);
  }
  PLAIT_CHECK(call.grad_weights.empty() || call.grad_weights.size() == call.forward.ids.size(),
              kLayer, ": ", call.grad_weights.size(), " gradients for ", call.forward.ids.size(),
              " weights of slots");
  check_turned(call.turned_up, own.up, "turned_up", desc.weight, caller.rank);
  check_turned(call.turned_down, own.down, "turned_down", desc.weight, caller.rank);
  const std::int64_t count = own.up.count;
  check_gradients(call.grad_up, {"grad_up", count, own.up.n, own.up.k}, call.forward.up, call);
  check_gradients(call.grad_down, {"grad_down", count, own.down.n, own.down.k}, call.forward.down,
                  call);
  check_gradients(call.grad_up_biases, {"grad_up_biases", count, 1, own.up.n}, {}, call);
  check_gradients(call.grad_down_biases, {"grad_down_biases", count, 1, own.down.n}, {}, call);
}

}  // namespace plait::experts
