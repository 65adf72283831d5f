// Small problems for tests of operators: one rank's operands, of sizes that all ranks agree on.
#pragma once

#include <cstdint>

#include "gemm/matrix.h"
#include "ops/shapes.h"
#include "plait/collectives.h"
#include "plait/ops.h"

namespace plait {

struct OpProblem {
  OpProblem(Operator operation, std::int64_t m_of_all, const Communicator& comm,
            std::int64_t columns = 200, std::int64_t depth = 96)
      : op(operation),
        m(m_of_all),
        n(columns),
        x(Dtype::bf16, ops::count(ops::shapes_of(op).x, m, comm.rank(), comm.world()), depth,
          static_cast<std::uint64_t>(comm.rank()) + 1),
        w(Dtype::bf16, n, depth, static_cast<std::uint64_t>(comm.rank()) + 50),
        out(Dtype::bf16, ops::count(ops::shapes_of(op).out, m, comm.rank(), comm.world()), n),
        packed(plain(), 1) {}

  WeightView plain() const { return {.view = w.view, .layout = WeightLayout::out_in}; }

  // With the packed weight, or as it lies.
  OpDesc desc() const { return desc_of(packed); }
  OpCall call() const { return {.x = x.view, .weight = packed, .out = out.view}; }
  OpDesc plain_desc() const { return desc_of(plain()); }
  OpCall plain_call() const { return {.x = x.view, .weight = plain(), .out = out.view}; }

  OpDesc desc_of(Weight weight) const {
    return {.op = op, .m = m, .n = weight.n(), .k = weight.k(), .weight = weight.kind()};
  }

  Operator op;
  std::int64_t m;
  std::int64_t n;
  Matrix x;
  Matrix w;
  Matrix out;
  PackedWeight packed;
};

}  // namespace plait
