#include "overlap/cuda/cuda_op.h"

#include <bit>
#include <limits>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/fingerprint.h"
#include "base/round_up.h"
#include "overlap/cuda/cuda_group.h"
#include "overlap/cuda/runtime.h"

namespace plait::overlap::cuda {
namespace {

std::optional<DeviceOperator> operator_of(Operator op) {
  switch (op) {
    case Operator::matmul:
      return DeviceOperator::matmul;
    case Operator::matmul_all_reduce:
      return DeviceOperator::matmul_all_reduce;
    case Operator::matmul_reduce_scatter:
      return DeviceOperator::matmul_reduce_scatter;
    case Operator::all_gather_matmul:
      return DeviceOperator::all_gather_matmul;
    default:
      return std::nullopt;
  }
}

Kind kind_of(Dtype dtype) {
  if (dtype == Dtype::bf16) return kBf16;
  return dtype == Dtype::f16 ? kF16 : kF32;
}

// The kernels count some tiles and bytes in 32 bits.
constexpr std::int64_t kMostRows = std::int64_t{1} << 22;

DevicePlan plan_of(const Plan& plan, int blocks) {
  DevicePlan on_device = {.parts = plan.parts, .share = {.blocks = blocks}};
  if (plan.schedule == Schedule::serial) on_device.schedule = DeviceSchedule::serial;
  if (plan.schedule == Schedule::pipelined) on_device.schedule = DeviceSchedule::pipelined;
  return on_device;
}

// A single row's stride is never used, and may be anything.
long long stride_of(const ConstTensorView& view) {
  return view.rows > 1 ? view.row_stride : base::round_up(view.cols, std::int64_t{8});
}

// All values that ranks of a call must have in common.
unsigned int fingerprint_of(const Tag& tag) {
  const std::uint64_t values[] = {static_cast<std::uint64_t>(tag.operation),
                                  static_cast<std::uint64_t>(tag.dtype),
                                  static_cast<std::uint64_t>(tag.wire),
                                  tag.call,
                                  tag.plan,
                                  static_cast<std::uint64_t>(tag.sizes[0]),
                                  static_cast<std::uint64_t>(tag.sizes[1]),
                                  static_cast<std::uint64_t>(tag.sizes[2])};
  const std::uint64_t hash = base::fingerprint(values);
  return static_cast<unsigned int>(hash ^ hash >> 32);
}

class CudaOp final : public OpImpl {
 public:
  CudaOp(const DeviceOpSpec& spec, Communicator& comm)
      : problem_(spec.problem),
        comm_(comm),
        group_(
            CudaGroup::of(comm, spec.problem.device, !traits_of(spec.problem.op).communicates())) {}

  void make_room(std::int64_t m, const Plan& /*plan*/) override {
    Problem most = problem_;
    most.m = m;
    group_->make_room(needs_of(on_device(most, WeightLayout::out_in), group_->world()), comm_,
                      name(problem_.op));
  }

  void run(const Call& call) override {
    group_->raise_if_failed(name(problem_.op));
    const WeightView& weight = call.operands.weight.view();
    const DeviceProblem problem = on_device(problem_, weight.layout);
    const DeviceOperands operands = {
        .x = call.operands.x.data,
        .x_stride = stride_of(call.operands.x),
        .weight = weight.view.data,
        .weight_stride = stride_of(weight.view),
        .out = call.out.data,
        .out_stride = call.out.row_stride,
        .bias = {.values = call.operands.bias.cols > 0 ? call.operands.bias.data : nullptr,
                 .kind = kind_of(call.operands.bias.dtype)},
        .gathered = call.gathered.data,
        .gathered_stride = call.gathered.row_stride};
    const OnGpu on(group_->device());
    auto* const stream = static_cast<cudaStream_t>(call.stream.handle);
    group_->order(stream);
    const DeviceRank rank = {.rank = group_->rank(), .world = group_->world()};
    check_cuda(cuda::run(problem, operands, plan_of(plan_, group_->blocks()), rank,
                         group_->mailbox(), fingerprint_of(call.tag), stream),
               name(problem_.op));
    group_->note_queued(stream);
  }

  std::size_t held_bytes() const override { return 0; }  // the group has the mailbox

 private:
  void cut(std::int64_t m, const Plan& plan) override {
    PLAIT_CHECK(m <= kMostRows, name(problem_.op), ": m=", m, " is more than ", kMostRows,
                ", the most rows on a GPU");
    problem_.m = m;
    plan_ = plan;
    make_room(m, plan);
  }

  static DeviceProblem on_device(const Problem& problem, WeightLayout layout) {
    // NOLINTNEXTLINE(bugprone-unchecked-optional-access): refusal_of() has let the operator pass
    return {.op = *operator_of(problem.op),
            .m = static_cast<int>(problem.m),
            .n = static_cast<int>(problem.n),
            .k = static_cast<int>(problem.k),
            .element = kind_of(problem.x),
            .layout = layout == WeightLayout::out_in ? Layout::out_in : Layout::in_out,
            .wire = kind_of(problem.wire),
            .out = kind_of(problem.out)};
  }

  Problem problem_;
  Communicator& comm_;
  std::shared_ptr<CudaGroup> group_;
  Plan plan_;
};

}  // namespace

std::string refusal_of(const DeviceOpSpec& spec) {
  const Problem& problem = spec.problem;
  if (!operator_of(problem.op)) {
    return base::sentence("there is no ", name(problem.op),
                          " on a GPU; there are matmul, matmul_all_reduce, matmul_reduce_scatter "
                          "and all_gather_matmul");
  }
  if (spec.weight.dtype != problem.x) {
    return base::sentence("x is ", name(problem.x), " and the weight ", name(spec.weight.dtype),
                          "; on a GPU both have the same dtype");
  }
  const bool sums = traits_of(problem.op).shares_k;
  if (sums && problem.wire != Dtype::f32 && problem.wire != problem.x) {
    return base::sentence("the wire is ", name(problem.wire), "; on a GPU it is f32 or x's dtype, ",
                          name(problem.x));
  }
  if (!spec.backend.empty())
    return base::sentence("there is no backend ", spec.backend, " on a GPU; leave it empty");
  if (problem.k % 8 != 0)
    return base::sentence("k=", problem.k, " is no multiple of 8, as a GPU needs it");
  constexpr std::int64_t kMost = std::numeric_limits<int>::max() / 4;
  if (problem.n > kMost || problem.k > kMost)
    return base::sentence("n=", problem.n, " and k=", problem.k, "; on a GPU each is at most ",
                          kMost);
  return {};
}

std::unique_ptr<OpImpl> make_op(const DeviceOpSpec& spec, Communicator& comm) {
  return std::make_unique<CudaOp>(spec, comm);
}

}  // namespace plait::overlap::cuda
