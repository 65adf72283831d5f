#include "predict/modelled_product.h"

#include <cmath>

namespace plait::predict {

void ModelledProduct::product(const Product& product, Look look) {
  if (left_out_) return;
  // What it reads is there when the chores that bring it are done.
  clock_.settle();
  const base::Nanoseconds begin = clock_.now();
  if (!fused_ || !launched_) clock_.spend(device_.launch);
  launched_ = true;
  const double takes =
      product_time(device_, {product.rows, product.columns, product.k}, bytes_, fused_);
  clock_.work({.time = static_cast<base::Nanoseconds>(std::llround(takes)),
               .poll = device_.poll > 0 ? device_.poll : product.poll,
               .share = device_.lost},
              look);
  clock_.record(Lane::compute, "product", {.begin = begin, .end = clock_.now()},
                {.flops = product.flops()});
}

}  // namespace plait::predict
