// The blocking calls: each finds what was prepared for its kind, or prepares it.
#include "ops/checks.h"
#include "ops/kept.h"
#include "ops/shapes.h"

namespace plait {
namespace {

struct Operands {
  const ConstTensorView& x;
  const OpWeight& weight;
  const TensorView& out;
};

void run(Operator op, const Operands& operands, Communicator& comm, const OpExtras& extras) {
  const bool has_all_rows = ops::shapes_of(op).x == ops::Rows::all;
  const OpDesc desc = {.op = op,
                       .m = has_all_rows ? operands.x.rows : operands.out.rows,
                       .x = operands.x.dtype,
                       .out = operands.out.dtype,
                       .gathered = extras.gathered.data != nullptr || extras.gathered.rows > 0};
  const OpCall call = {.x = operands.x,
                       .out = operands.out,
                       .bias = extras.bias,
                       .gathered = extras.gathered,
                       .beside = extras.beside ? &extras.beside : nullptr};
  ops::check(desc, operands.weight, extras.options);
  ops::check(desc, operands.weight, call, {comm.rank(), comm.world()});
  ops::Kept::of(comm).run(desc, operands.weight, comm, extras.options, call);
}

}  // namespace

void matmul(const ConstTensorView& x, const OpWeight& weight, const TensorView& out,
            Communicator& comm, const OpExtras& extras) {
  run(Operator::matmul, {x, weight, out}, comm, extras);
}
void matmul_all_reduce(const ConstTensorView& x, const OpWeight& weight, const TensorView& out,
                       Communicator& comm, const OpExtras& extras) {
  run(Operator::matmul_all_reduce, {x, weight, out}, comm, extras);
}
void matmul_reduce_scatter(const ConstTensorView& x, const OpWeight& weight, const TensorView& out,
                           Communicator& comm, const OpExtras& extras) {
  run(Operator::matmul_reduce_scatter, {x, weight, out}, comm, extras);
}
void matmul_all_gather(const ConstTensorView& x, const OpWeight& weight, const TensorView& out,
                       Communicator& comm, const OpExtras& extras) {
  run(Operator::matmul_all_gather, {x, weight, out}, comm, extras);
}
void all_gather_matmul(const ConstTensorView& x, const OpWeight& weight, const TensorView& out,
                       Communicator& comm, const OpExtras& extras) {
  run(Operator::all_gather_matmul, {x, weight, out}, comm, extras);
}
void reduce_scatter_matmul(const ConstTensorView& x, const OpWeight& weight, const TensorView& out,
                           Communicator& comm, const OpExtras& extras) {
  run(Operator::reduce_scatter_matmul, {x, weight, out}, comm, extras);
}
void all_reduce_matmul(const ConstTensorView& x, const OpWeight& weight, const TensorView& out,
                       Communicator& comm, const OpExtras& extras) {
  run(Operator::all_reduce_matmul, {x, weight, out}, comm, extras);
}

}  // namespace plait
