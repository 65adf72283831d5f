// One product's operands.
#pragma once

#include <vector>

#include "gemm/matrix.h"
#include "plait/gemm.h"

namespace plait {

struct Problem {
  explicit Problem(const GemmDesc& description, WeightLayout weight_layout = WeightLayout::out_in,
                   bool transposed = false)
      : desc(description),
        x(desc.x, transposed ? desc.k : desc.m, transposed ? desc.m : desc.k, 1),
        w(desc.weight, weight_layout == WeightLayout::out_in ? desc.n : desc.k,
          weight_layout == WeightLayout::out_in ? desc.k : desc.n, 2),
        layout(weight_layout),
        x_transposed(transposed) {}

  GemmInput input() const { return {.view = x.view, .transposed = x_transposed}; }
  WeightView weight() const { return {.view = w.view, .layout = layout}; }
  // Element k of each row of X, and of each column of the weight, one after another.
  std::vector<double> rows() const {
    std::vector<double> all;
    for (std::int64_t i = 0; i < desc.m; ++i) {
      for (std::int64_t k = 0; k < desc.k; ++k)
        all.push_back(x_transposed ? at(x.view, k, i) : at(x.view, i, k));
    }
    return all;
  }
  std::vector<double> columns() const {
    std::vector<double> all;
    for (std::int64_t j = 0; j < desc.n; ++j) {
      for (std::int64_t k = 0; k < desc.k; ++k)
        all.push_back(layout == WeightLayout::out_in ? at(w.view, j, k) : at(w.view, k, j));
    }
    return all;
  }

  GemmDesc desc;
  Matrix x;
  Matrix w;
  WeightLayout layout;
  bool x_transposed;
};

}  // namespace plait
