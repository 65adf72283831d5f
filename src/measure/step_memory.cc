#include "measure/step_memory.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/check.h"
#include "base/text.h"
#include "measure/memory.h"
#include "measure/product_memory.h"
#include "nn/rows.h"
#include "ops/shapes.h"
#include "plan/sizes.h"

namespace plait::measure {
namespace {

// The most bytes that a communicator's prepared operators, and its products, may take each. Beyond
// that, the ones used least recently are freed (plait/linear.h).
constexpr double kKept = 1 << 30;

// A rank's layer: the whole of one side, and the rank's share of the other.
struct Sides {
  std::int64_t whole;
  std::int64_t share;
};

Sides sides_of(const LinearLayer& layer, int world) {
  const bool row = layer.kind == LinearKind::row;
  return {.whole = row ? layer.out : layer.in,
          .share = ops::share_of(row ? layer.in : layer.out, 0, world)};
}

// Objects in a cache that keeps so many bytes, and always the last one, however large.
class Cached {
 public:
  void add(double bytes) {
    sum_ += bytes;
    largest_ = std::max(largest_, bytes);
  }
  double bytes() const { return std::min(sum_, kKept + largest_); }

 private:
  double sum_ = 0;
  double largest_ = 0;
};

// The dtypes of a step's products.
GemmDesc product_of(const StepSetup& setup) {
  return {.m = setup.tokens, .n = 1, .k = 1, .x = setup.dtype, .weight = setup.dtype};
}

class RankMemory {
 public:
  RankMemory(const StepSetup& setup, int world)
      : setup_(setup),
        world_(world),
        shards_(setup.sequence_parallel && world > 1),
        rows_(static_cast<double>(setup.tokens)),
        dtype_(static_cast<double>(size_of(setup.dtype))),
        wire_(static_cast<double>(size_of(setup.wire))),
        product_(product_of(setup), "", setup.threads) {}

  // Gathered rows and partial sums are as large as the largest layer's; products are kept.
  double kept_by_a_plan(const Plan& plan) const {
    Cached operators;
    Cached products;
    double gathered = 0;
    double partial = 0;
    for (const LinearLayer& layer : setup_.linears) {
      const auto whole =
          static_cast<double>(nn::spaced(setup_.dtype, sides_of(layer, world_).whole));
      const std::int64_t share = sides_of(layer, world_).share;
      const bool row = layer.kind == LinearKind::row;
      // x in panels, for forward and backward; rows that column layers gather; sums within an
      // operator.
      operators.add(packed(sides_of(layer, world_).whole) +
                    (shards_ && !row ? rows_ * whole * dtype_ : 0));
      operators.add(packed(share) + (row || setup_.column_backward ? rows_ * whole * wire_ : 0));
      products.add(packed(row ? sides_of(layer, world_).whole : share, /*transposed=*/true));
      if (shards_) gathered = std::max(gathered, rows_ * whole * dtype_);
      if (!row && !setup_.column_backward) partial = std::max(partial, rows_ * whole * wire_);
    }
    return operators.bytes() + products.bytes() + gathered + partial + mailboxes(plan);
  }

  // Mailboxes of the gathers and sums that run during products, and of operators, which have up to
  // three kinds in each direction.
  double mailboxes(const Plan& plan) const {
    constexpr double kCollectives = 8 * kCopiedBytes;
    constexpr double kSlots = 3 * 8;
    return world_ * (kCollectives + kSlots * static_cast<double>(std::bit_ceil(slot(plan))));
  }

 private:
  // Rows of so many elements, with the workspace of their product.
  double packed(std::int64_t width, bool transposed = false) const {
    return product_.ready_rows(setup_.tokens, width, transposed) +
           product_.workspace(std::max(setup_.tokens, width), width);
  }

  // Bytes of the largest chunk: of sums, of the result, or of gathered rows, which stay whole.
  std::uint64_t slot(const Plan& plan) const {
    const auto dtype = static_cast<std::int64_t>(size_of(setup_.dtype));
    const auto wire = static_cast<std::int64_t>(size_of(setup_.wire));
    const std::int64_t sum = std::max(dtype, wire);
    const std::int64_t rows = ops::share_of(setup_.tokens, 0, world_);
    std::int64_t bytes = kCopiedBytes / wire * sum;
    for (const LinearLayer& layer : setup_.linears) {
      const std::int64_t whole = sides_of(layer, world_).whole;
      bytes = std::max(bytes, whole * dtype);
      if (plan.schedule != Schedule::fused) continue;
      const std::int64_t columns = std::min(chunk_columns(plan, whole), whole);
      bytes = std::max({bytes, rows * columns * sum, std::min(plan.chunk, rows) * whole * dtype});
    }
    return static_cast<std::uint64_t>(bytes);
  }

  std::int64_t chunk_columns(const Plan& plan, std::int64_t whole) const {
    if (plan.chunk > 0) return plan.chunk;
    const PartialSums sums = {.m = setup_.tokens, .n = whole, .dtype = setup_.wire};
    return std::max(suitable_chunk(sums, world_, true), suitable_chunk(sums, world_, false));
  }

  const StepSetup& setup_;
  int world_;
  bool shards_;  // rows are sharded between the layers
  double rows_;
  double dtype_;
  double wire_;
  ProductMemory product_;
};

}  // namespace

double memory_needed(const StepSetup& setup, int world) {
  const auto dtype = static_cast<double>(size_of(setup.dtype));
  const auto gradient = static_cast<double>(size_of(setup.grad_weight));
  const auto rows = static_cast<double>(setup.tokens) * world;
  const bool keeps = setup.keep_gathered && setup.sequence_parallel && world > 1;
  const auto times_kept = static_cast<double>(setup.plans.size()) * setup.layers;
  double needed = 0;
  for (const LinearLayer& layer : setup.linears) {
    const double weights = static_cast<double>(layer.in) * static_cast<double>(layer.out);
    // Weights and gradients, activations and their gradients, and another copy of all results for
    // comparison.
    needed += setup.layers * weights * (dtype + 2 * gradient) +
              static_cast<double>(layer.in + layer.out) * rows * 3 * dtype;
    if (keeps && layer.kind == LinearKind::column)
      needed += times_kept * static_cast<double>(nn::spaced(setup.dtype, layer.in)) * rows * dtype;
  }
  const RankMemory rank(setup, world);
  for (const Plan& plan : setup.plans) needed += world * rank.kept_by_a_plan(plan);
  // The products without communication are one more plan, on ranks that run alone.
  return needed + world * rank.kept_by_a_plan({.schedule = Schedule::serial});
}

void check_memory(const StepSetup& setup, int world) {
  const double needed = memory_needed(setup, world);
  const auto available = static_cast<double>(read_memory().available);
  PLAIT_CHECK(needed <= available, "the step may take ", base::show_bytes(needed), " for ", world,
              " ranks and ", setup.plans.size(), " plans; available are ",
              base::show_bytes(available),
              setup.model.empty() ? "" : "; a smaller --scale or fewer --layers take less");
}

}  // namespace plait::measure
