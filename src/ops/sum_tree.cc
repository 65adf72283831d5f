// Finds the tree in which the sums of an operator are added.
#include "base/check.h"
#include "ops/op_checks.h"
#include "ops/planned_op.h"
#include "ops/shapes.h"
#include "plait/gemm.h"

namespace plait {

SumTree sum_tree(const OpDesc& desc, int world, Dtype wire) {
  ops::check(desc, {.wire = wire});
  PLAIT_CHECK(world >= 1, name(desc.op), ": there is no world of ", world);
  if (!sums_over_ranks(desc.op)) return {};
  if (!traits_of(desc.op).shares_k) return {"the ranks add up their x before the product"};
  if (ops::wire_of(desc.op, desc.x, wire, 1) != Dtype::f32)
    return {"the wire rounds the partial sum of each rank"};
  if (desc.device != kCpu && world > 1) return {"a GPU adds up each rank's k as one chain"};
  return sum_tree(GemmDesc{.m = desc.m,
                           .n = desc.n,
                           .k = desc.k,
                           .x = desc.x,
                           .weight = desc.weight.scheme ? Dtype::bf16 : desc.weight.dtype,
                           .out = desc.out,
                           .quant = desc.weight.scheme,
                           .shares = world});
}

}  // namespace plait
