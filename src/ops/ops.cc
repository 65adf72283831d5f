// The blocking calls: each finds what was prepared for its kind, or prepares it.
#include <array>

#include "ops/blocking.h"
#include "ops/op_cache.h"
#include "ops/op_checks.h"

namespace plait {
namespace {

struct CallTensors {
  const ConstTensorView& x;
  const Weight& weight;
  const TensorView& out;
};

void run(Operator op, const CallTensors& operands, Communicator& comm, const OpOptions& options) {
  ops::check_usable(op, operands.weight, operands.x.device);
  const OpCall call = {.x = operands.x,
                       .weight = operands.weight,
                       .out = operands.out,
                       .bias = options.bias,
                       .gathered = options.gathered,
                       .stream = options.stream,
                       .poll = options.poll};
  const OpDesc desc = {.op = op,
                       .m = ops::rows_of(op, call),
                       .n = operands.weight.n(),
                       .k = operands.weight.k(),
                       .x = operands.x.dtype,
                       .weight = operands.weight.kind(),
                       .out = operands.out.dtype,
                       .gathered = options.gathered.data != nullptr || options.gathered.rows > 0,
                       .device = operands.x.device};
  ops::check(desc, options);
  ops::check(desc, call, {comm.rank(), comm.world()});
  ops::OpCache::of(comm).run(desc, comm, options, call);
}

}  // namespace

void matmul(const ConstTensorView& x, const Weight& weight, const TensorView& out,
            Communicator& comm, const OpOptions& options) {
  run(Operator::matmul, {x, weight, out}, comm, options);
}
void matmul_all_reduce(const ConstTensorView& x, const Weight& weight, const TensorView& out,
                       Communicator& comm, const OpOptions& options) {
  run(Operator::matmul_all_reduce, {x, weight, out}, comm, options);
}
void matmul_reduce_scatter(const ConstTensorView& x, const Weight& weight, const TensorView& out,
                           Communicator& comm, const OpOptions& options) {
  run(Operator::matmul_reduce_scatter, {x, weight, out}, comm, options);
}
void matmul_all_gather(const ConstTensorView& x, const Weight& weight, const TensorView& out,
                       Communicator& comm, const OpOptions& options) {
  run(Operator::matmul_all_gather, {x, weight, out}, comm, options);
}
void all_gather_matmul(const ConstTensorView& x, const Weight& weight, const TensorView& out,
                       Communicator& comm, const OpOptions& options) {
  run(Operator::all_gather_matmul, {x, weight, out}, comm, options);
}
void reduce_scatter_matmul(const ConstTensorView& x, const Weight& weight, const TensorView& out,
                           Communicator& comm, const OpOptions& options) {
  run(Operator::reduce_scatter_matmul, {x, weight, out}, comm, options);
}
void all_reduce_matmul(const ConstTensorView& x, const Weight& weight, const TensorView& out,
                       Communicator& comm, const OpOptions& options) {
  run(Operator::all_reduce_matmul, {x, weight, out}, comm, options);
}

ops::Blocking ops::blocking(Operator op) {
  // Indexed by Operator.
  static constexpr std::array<Blocking, kOperators> kAll = {matmul,
                                                            matmul_all_reduce,
                                                            matmul_reduce_scatter,
                                                            matmul_all_gather,
                                                            all_gather_matmul,
                                                            reduce_scatter_matmul,
                                                            all_reduce_matmul};
  return kAll[static_cast<std::size_t>(op)];
}

}  // namespace plait
