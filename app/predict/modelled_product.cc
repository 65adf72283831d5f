#include "predict/modelled_product.h"

#include <cmath>

namespace plait::predict {

void ModelledProduct::multiply(const comm::ProductWork& product, PollStep poll_step) {
  if (left_out_) return;
  // The operands have arrived when the copies and sums that bring them are done.
  rank_.drain();
  const base::Nanoseconds begin = rank_.now();
  // A fused product is one kernel, launched once.
  if (product.first || !product.fused()) rank_.spend(device_.launch);
  const ProductSize size = {product.rows, product.columns, product.k};
  const ProductSize kernel = {product.all_rows, product.all_columns, product.k};
  const ProductBytes bytes = {.x = product.x_bytes,
                              .weight = weight_bytes_.value_or(product.weight_bytes),
                              .out = product.out_bytes};
  const double takes = product.own_weight
                           ? group_time(device_, size, kernel, bytes)
                           : part_time(device_, size, product.fused() ? kernel : size, bytes);
  rank_.work({.time = static_cast<base::Nanoseconds>(std::llround(takes)),
              .poll = device_.poll > 0 ? device_.poll : product.poll,
              .share = device_.lost},
             poll_step);
  rank_.record(Lane::compute, product.label, {.begin = begin, .end = rank_.now()},
               {.flops = product.flops()});
}

}  // namespace plait::predict
