// The setup of an operator's measurement.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "measure/race.h"
#include "plait/link.h"
#include "plait/ops.h"
#include "plait/ulysses.h"
#include "tune/op_case.h"

namespace plait::measure {

// The sizes of the whole problem. If the product comes first and sums are sent, k is split over the
// ranks; if rows are gathered first, n is.
struct OpSize {
  std::int64_t m, n, k;
};

// The requested link: by its figures, or by its effect on the collective's time.
struct RequestedLink {
  std::optional<Link> link = {};
  double ratio = 0;  // of the collective's time to the product's; 0: not requested

  explicit operator bool() const { return link.has_value() || ratio > 0; }
};

// A call of plait/ulysses.h or plait/columns.h. It is no Operator: columns belong to its ranks.
struct ExchangeSetup {
  Family family = Family::ulysses;
  bool product_first = true;
  std::int64_t heads = 0;  // 0: ranks have equal shares of columns, as in Family::columns
  std::int64_t kv_heads = 0;

  std::string_view name() const;
  // An operator with the same schedules, and plans with the same fields.
  Operator like() const;
  // Refuses columns that the heads can't share.
  ColumnGroups columns(const OpSize& size, int world) const;
};

// The most columns that a rank has in an exchange of these sizes and ranks, for its key.
std::int64_t most_columns(const PlanKey& key, ExchangeSetup heads);

struct OpSetup {
  Operator op = Operator::matmul;  // with `exchange`: its product
  std::optional<ExchangeSetup> exchange = {};
  std::vector<OpSize> sizes;
  Dtype x = Dtype::bf16;
  Dtype out = Dtype::bf16;
  Dtype wire = Dtype::f32;
  std::string weight;  // a dtype or a scheme, packed; "plain": x's dtype, not packed before
  WeightLayout layout = WeightLayout::out_in;
  int ranks = 2;
  std::string transport;
  RequestedLink link;
  bool waits = false;       // wait as long as the product takes, in place of multiplying
  int threads = 0;          // 0: OpenMP's default
  std::string backend;      // of the product; empty: the best
  std::vector<Plan> plans;  // the serial one first
  Effort effort;

  std::string_view name() const { return exchange ? exchange->name() : plait::name(op); }
};

// The problem of one size, for plans and operands.
tune::Problem problem_of(const OpSetup& setup, const OpSize& size);

// The bytes of all ranks' operands and results, in plain dtypes. Ulysses has own rows and a whole
// weight, gathered columns all rows and a weight with own outputs; both have all rows of columns.
double operand_bytes(const PlanKey& key);

// Refuses a problem whose operands alone are more than this host's memory can hold now.
void check_memory(const PlanKey& key);

}  // namespace plait::measure
