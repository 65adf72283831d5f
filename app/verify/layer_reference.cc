#include "verify/layer_reference.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "plait/buffer.h"
#include "tensor/fill.h"

namespace plait::verify {

void LayerReference::fill_before(const TensorView& gradient, tensor::Origin origin) const {
  constexpr std::uint64_t kSeedOfGradients = 3;
  tensor::fill_random(gradient, case_.seed * 16 + kSeedOfGradients, origin);
}

tensor::Origin LayerReference::weight_origin() const {
  const std::int64_t output = whole_.own_outputs().begin;
  const std::int64_t input = whole_.own_inputs().begin;
  if (case_.layout == WeightLayout::out_in) return {.row = output, .col = input};
  return {.row = input, .col = output};
}

tensor::Origin LayerReference::bias_origin() const {
  return {.row = 0, .col = whole_.own_outputs().begin};
}

tensor::Roundings LayerReference::shared(Dtype out) const {
  return {
      .terms = terms_of(*std::max_element(case_.shares.begin(), case_.shares.end()), case_.scheme),
      .world = world_,
      .wire = case_.wire,
      .out = out};
}

template <class Product>
void LayerReference::add_group(tensor::Roundings& way, std::int64_t col, std::int64_t cols,
                               const Product& product) const {
  if (way.wire != Dtype::s8) return;
  std::vector<std::int64_t> begins = {0};
  for (const std::int64_t share : case_.shares) begins.push_back(begins.back() + share);
  way.group = group_magnitude(col, cols, world_, [&](int rank, std::int64_t j) {
    const auto index = static_cast<std::size_t>(rank);
    double sum = 0;
    for (std::int64_t k = begins[index]; k < begins[index + 1]; ++k) sum += std::abs(product(j, k));
    return sum;
  });
}

Wanted LayerReference::out_at(int i, std::int64_t row, std::int64_t col) const {
  const std::int64_t output = whole_.own_outputs().begin + col;
  Exact sum;
  for (std::int64_t k = 0; k < whole_.inputs(); ++k)
    sum.add(whole_.x_at(i, whole_.out_rows().begin + row, k), whole_.weight_at(output, k));
  sum.add(whole_.bias_at(output), 1);
  if (!case_.row)
    return {sum, {.terms = terms_of(whole_.inputs(), case_.scheme), .out = case_.out}};
  tensor::Roundings way = shared(case_.out);
  add_group(way, col, whole_.outputs(), [&](std::int64_t j, std::int64_t k) {
    return whole_.x_at(i, whole_.out_rows().begin + row, k) * whole_.weight_at(j, k);
  });
  return {sum, way};
}

Wanted LayerReference::grad_x_at(int i, std::int64_t row, std::int64_t col) const {
  const std::int64_t input = whole_.own_inputs().begin + col;
  Exact sum;
  for (std::int64_t n = 0; n < whole_.outputs(); ++n)
    sum.add(whole_.grad_out_at(i, whole_.x_rows().begin + row, n),
            whole_.turned_weight_at(n, input));
  if (case_.row)
    return {sum, {.terms = terms_of(whole_.outputs(), case_.scheme), .out = case_.grad_x}};
  tensor::Roundings way = shared(case_.grad_x);
  add_group(way, col, whole_.inputs(), [&](std::int64_t j, std::int64_t n) {
    return whole_.grad_out_at(i, whole_.x_rows().begin + row, n) * whole_.turned_weight_at(n, j);
  });
  return {sum, way};
}

Wanted LayerReference::grad_weight_at(int i, std::int64_t row, std::int64_t col,
                                      tensor::Origin place) const {
  Exact sum;
  for (std::int64_t m = 0; m < case_.m; ++m)
    sum.add(whole_.grad_out_at(i, m, whole_.own_outputs().begin + row),
            whole_.x_at(i, m, whole_.own_inputs().begin + col));
  const tensor::Origin origin = weight_origin();
  sum.add(before({.row = origin.row + place.row, .col = origin.col + place.col}), 1);
  return {sum, {.terms = case_.m + 1, .out = case_.grad_weight}};
}

Wanted LayerReference::grad_bias_at(int i, std::int64_t col) const {
  Exact sum;
  for (std::int64_t m = 0; m < case_.m; ++m)
    sum.add(whole_.grad_out_at(i, m, whole_.own_outputs().begin + col), 1);
  sum.add(before({.row = 0, .col = bias_origin().col + col}), 1);
  return {sum, {.terms = case_.m + 1, .out = case_.grad_weight}};
}

double LayerReference::before(tensor::Origin place) const {
  if (!case_.accumulate) return 0;
  const Buffer one(size_of(case_.grad_weight));
  fill_before(one.view(case_.grad_weight, 1, 1), place);
  return element(one.view(case_.grad_weight, 1, 1), 0, 0);
}

}  // namespace plait::verify
