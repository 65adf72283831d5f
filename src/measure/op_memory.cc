#include "measure/op_memory.h"

#include "base/check.h"
#include "base/round_up.h"
#include "base/text.h"
#include "measure/memory.h"
#include "measure/product_memory.h"

namespace plait::measure {
namespace {

double bytes_of(std::int64_t rows, std::int64_t columns, Dtype dtype) {
  return static_cast<double>(rows) * static_cast<double>(columns) *
         static_cast<double>(size_of(dtype));
}

// The product of a key's operator. Packing the weight in each call does not change which kernel
// multiplies it.
GemmDesc product_of(const PlanKey& key) {
  const std::string weight = key.weight.substr(0, key.weight.find(":plain"));
  return parse_gemm(
      base::sentence("m=", key.m, " n=", key.n, " k=", key.k, " x=", name(key.x), " w=", weight));
}

// The bytes of one plan on one rank. Product first: the sums that leave the product, and x in
// panels. Communication first: the rows that come before the product, possibly all of them in
// panels.
double kept_by_a_plan(const PlanKey& key) {
  const ProductMemory product(product_of(key), key.backend, key.threads);
  const std::int64_t share = base::ceil_div(key.m, key.world);
  if (!is_compute_first(key.op)) {
    const std::int64_t rows = traits_of(key.op).has_own_out() ? share : key.m;
    return bytes_of(rows, key.k, key.x) + product.ready_rows(rows, key.k) +
           product.workspace(rows, key.n);
  }
  if (!sums_over_ranks(key.op))
    return product.ready_rows(share, key.k) + product.workspace(share, key.n);
  return bytes_of(key.m, key.n, key.wire) +
         product.ready_rows(key.m, base::ceil_div(key.k, key.world)) +
         product.workspace(key.m, key.n);
}

}  // namespace

double memory_needed(const PlanKey& key, std::size_t plans) {
  const OperatorTraits& traits = traits_of(key.op);
  const bool has_share = traits.shares_n || traits.shares_k;
  const std::int64_t own_k = traits.shares_k ? base::ceil_div(key.k, key.world) : key.k;
  // The operands, the results and their copies for comparison, the weight before and after packing,
  // and the mailboxes: counted in elements of the largest dtype.
  const double shared = bytes_of(key.m, own_k, Dtype::f32) +
                        3 * bytes_of(key.m, key.n, Dtype::f32) +
                        2 * bytes_of(key.n, key.k, Dtype::f32) / (has_share ? key.world : 1);
  return key.world * (shared + static_cast<double>(plans) * kept_by_a_plan(key));
}

void check_memory(const PlanKey& key, std::size_t plans) {
  const double needed = memory_needed(key, plans);
  const auto available = static_cast<double>(read_memory().available);
  PLAIT_CHECK(needed <= available, "m=", key.m, " n=", key.n, " k=", key.k, " may take ",
              base::show_bytes(needed), " for ", key.world, " ranks and ", plans,
              " plans; available are ", base::show_bytes(available));
}

}  // namespace plait::measure
