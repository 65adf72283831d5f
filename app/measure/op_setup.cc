#include "measure/op_setup.h"

#include "base/check.h"
#include "measure/memory.h"
#include "plan/weight_kind.h"

namespace plait::measure {

tune::Problem problem_of(const OpSetup& setup, const OpSize& size) {
  return {
      .key = {.op = setup.op,
              .m = size.m,
              .n = size.n,
              .k = size.k,
              .x = setup.x,
              .weight = setup.weight == plan::kPlain ? plan::plain_weight(setup.x) : setup.weight,
              .out = setup.out,
              .wire = setup.wire,
              .world = setup.ranks,
              .threads = setup.threads,
              .backend = setup.backend,
              .transport = setup.transport},
      .layout = setup.layout};
}

void check_memory(const PlanKey& key) {
  check_memory(tune::OpCase::operand_bytes(key),
               base::sentence("m=", key.m, " n=", key.n, " k=", key.k, " with ", key.world,
                              key.world == 1 ? " rank" : " ranks"));
}

}  // namespace plait::measure
