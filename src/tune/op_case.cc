#include "tune/op_case.h"

#include <cstring>

#include "comm/core/timed_product.h"
#include "comm/session/state.h"
#include "ops/shapes.h"
#include "plan/sizes.h"
#include "plan/weight_kind.h"
#include "tensor/fill.h"

namespace plait::tune {
namespace {

constexpr std::uint64_t kSeedOfX = 1;
constexpr std::uint64_t kSeedOfWeight = 2;

std::uint64_t seed_of(int rank) { return static_cast<std::uint64_t>(rank) * 16; }

// A quantised weight is made from values with the dtype of x.
Dtype dtype_of(const PlanKey& key) {
  if (const auto plain = plan::plain_dtype(key.weight)) return *plain;
  return parse_quant_scheme(key.weight) ? key.x : parse_dtype(key.weight).value_or(key.x);
}

}  // namespace

OpCase::OpCase(const Problem& problem, const Communicator& comm)
    : key_(problem.key),
      layout_(problem.layout),
      dtype_(dtype_of(key_)),
      rank_(comm.rank()),
      world_(comm.world()),
      n_(key_.n),
      k_(key_.k) {
  const OperatorTraits& traits = traits_of(key_.op);
  if (traits.shares_n) n_ = ops::share_of(key_.n, rank_, world_);
  if (traits.shares_k) k_ = ops::share_of(key_.k, rank_, world_);
  x_ = Buffer::for_tensor(key_.x, key_.m, k_, {.huge_pages = true});
  tensor::fill_random(x_.view(key_.x, key_.m, k_), seed_of(rank_) + kSeedOfX);
  out_ = Buffer::for_tensor(key_.out, key_.m, n_, {.huge_pages = true});
  std::memset(out_.data(), 0, out_.bytes());
  weight_ = random_weight(dtype_);
  if (plan::plain_dtype(key_.weight)) return;
  if (const auto scheme = parse_quant_scheme(key_.weight)) {
    packed_.emplace(quantize(as_it_lies(), *scheme, key_.threads), key_.threads);
  } else {
    packed_.emplace(as_it_lies(), key_.threads);
  }
  weight_ = Buffer();
}

double OpCase::operand_bytes(const PlanKey& key) {
  const OperatorTraits& traits = traits_of(key.op);
  const auto bytes = [](std::int64_t rows, std::int64_t columns, Dtype dtype) {
    return static_cast<double>(rows) * static_cast<double>(columns) *
           static_cast<double>(size_of(dtype));
  };
  const std::int64_t n = traits.shares_n ? ops::share_of(key.n, 0, key.world) : key.n;
  const std::int64_t k = traits.shares_k ? ops::share_of(key.k, 0, key.world) : key.k;
  return key.world *
         (bytes(key.m, k, key.x) + bytes(key.m, n, key.out) + bytes(n, k, dtype_of(key)));
}

Buffer OpCase::random_weight(Dtype dtype) const {
  const bool out_in = layout_ == WeightLayout::out_in;
  const std::int64_t rows = out_in ? n_ : k_;
  const std::int64_t cols = out_in ? k_ : n_;
  Buffer weight = Buffer::for_tensor(dtype, rows, cols, {.huge_pages = true});
  tensor::fill_random(weight.view(dtype, rows, cols), seed_of(rank_) + kSeedOfWeight);
  return weight;
}

WeightView OpCase::as_it_lies() const {
  const bool out_in = layout_ == WeightLayout::out_in;
  return {.view = weight_.view(dtype_, out_in ? n_ : k_, out_in ? k_ : n_), .layout = layout_};
}

Weight OpCase::weight() const {
  if (packed_) return *packed_;
  return as_it_lies();
}

// For an operator in parts, a rank sends each peer the peer's shard, its own shard, or both.
double OpCase::bytes_on_link() const {
  const auto shard = static_cast<double>(ops::share_of(key_.m, 0, world_));
  const OperatorTraits& traits = traits_of(key_.op);
  const std::int64_t columns = traits.compute_first ? key_.n : key_.k;
  const double elements = shard * static_cast<double>(columns);
  double bytes = 0;
  if (traits.reduces) {
    const Dtype wire = ops::wire_of(key_.op, key_.x, key_.wire);
    bytes += shard * static_cast<double>(plan::wire_bytes(wire, /*rows=*/1, columns));
  }
  if (traits.gathers)
    bytes += elements * static_cast<double>(size_of(traits.compute_first ? key_.out : key_.x));
  return bytes;
}

double OpCase::flops() const { return 2.0 * static_cast<double>(multiplied_rows() * n_ * k_); }

// The rows of this rank's product.
std::int64_t OpCase::multiplied_rows() const {
  return ops::count(ops::multiplied_rows(key_.op), key_.m, rank_, world_);
}

TensorView OpCase::x_of(Operator op) const {
  const std::int64_t rows = op == Operator::matmul
                                ? multiplied_rows()
                                : ops::count(ops::shapes_of(op).x, key_.m, rank_, world_);
  return x_.view(key_.x, key_.m, k_).row_range(0, rows);
}

TensorView OpCase::out_of(Operator op) const {
  const std::int64_t rows = op == Operator::matmul
                                ? multiplied_rows()
                                : ops::count(ops::shapes_of(op).out, key_.m, rank_, world_);
  return out_.view(key_.out, key_.m, n_).row_range(0, rows);
}

OpCase::Runner::Runner(const OpCase& one, Operator op, const Plan& plan, Communicator& comm)
    : group_(comm.state().group()),
      call_({.x = one.x_of(op), .weight = one.weight(), .out = one.out_of(op)}),
      prepared_({.op = op,
                 .m = op == Operator::matmul ? one.multiplied_rows() : one.key_.m,
                 .n = call_.weight.n(),
                 .k = call_.weight.k(),
                 .x = one.key_.x,
                 .weight = call_.weight.kind(),
                 .out = one.key_.out},
                comm,
                {.wire = one.key_.wire,
                 .plan = plan,
                 .threads = one.key_.threads,
                 .backend = one.key_.backend}) {}

void OpCase::Runner::run(std::optional<double> ns_per_flop) {
  if (!ns_per_flop) return prepared_.run(call_);
  comm::TimedProduct product(*ns_per_flop);
  const comm::ScopedExecutor scoped(group_, product);
  prepared_.run(call_);
}

std::unique_ptr<OpCase::Runner> OpCase::product(Communicator& comm) const {
  return std::make_unique<Runner>(*this, Operator::matmul, Plan{.schedule = Schedule::serial},
                                  comm);
}

std::unique_ptr<OpCase::Runner> OpCase::runner(const Plan& plan, Communicator& comm) const {
  return std::make_unique<Runner>(*this, key_.op, plan, comm);
}

}  // namespace plait::tune
