#include "measure/op_setup.h"

#include "base/check.h"
#include "measure/memory.h"
#include "ops/shapes.h"
#include "plan/families.h"
#include "plan/weight_kind.h"
#include "ulysses/columns.h"

namespace plait::measure {

std::string_view ExchangeSetup::name() const {
  return plan::find_family_call(family, product_first)->name;
}

Operator ExchangeSetup::like() const { return plan::find_family_call(family, product_first)->like; }

ColumnGroups ExchangeSetup::columns(const OpSize& size, int world) const {
  const std::int64_t columns = product_first ? size.n : size.k;
  if (heads == 0) return equal_columns(columns, world);
  const std::int64_t all = product_first ? heads + 2 * kv_heads : heads;
  PLAIT_CHECK(columns % all == 0, name(), ": ", columns, " columns are not those of ", all,
              product_first ? " heads of q, k and v" : " heads");
  const Heads of = {.heads = heads, .kv_heads = kv_heads, .size = columns / all};
  return product_first ? qkv_columns(of, world) : head_columns(of, world);
}

std::int64_t most_columns(const PlanKey& key, ExchangeSetup heads) {
  heads.family = key.family;
  heads.product_first = is_compute_first(key.op);
  if (key.family == Family::columns) heads.heads = 0;
  return ulysses::most_of(heads.columns({key.m, key.n, key.k}, key.world));
}

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

double operand_bytes(const PlanKey& key) {
  if (key.family == Family::operators) return tune::OpCase::operand_bytes(key);
  const auto share = [&](std::int64_t whole) { return ops::share_of(whole, 0, key.world); };
  const bool gathers = key.family == Family::columns;
  const bool product_first = is_compute_first(key.op);
  PlanKey own = key;
  own.op = Operator::matmul;
  std::int64_t width = product_first ? key.n : key.k;
  if (gathers) {
    own.n = share(key.n);
  } else {
    own.m = share(key.m);
    width = share(width);
  }
  const std::size_t element = size_of(product_first ? key.out : key.x);
  return tune::OpCase::operand_bytes(own) + static_cast<double>(key.world * key.m) *
                                                static_cast<double>(width) *
                                                static_cast<double>(element);
}

void check_memory(const PlanKey& key) {
  check_memory(operand_bytes(key), base::sentence("m=", key.m, " n=", key.n, " k=", key.k, " with ",
                                                  key.world, key.world == 1 ? " rank" : " ranks"));
}

}  // namespace plait::measure
