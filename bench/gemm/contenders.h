// The contenders. A case is called "SHAPE/DTYPE/CONTENDER/ROWS", such as "square/bf16/plait/512".
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "operands.h"

namespace plait::bench {

struct Case {
  Dtype dtype;  // of x, of the weight before packing, and of the result
  std::int64_t rows;
};

// One way to compute a product. prepare() makes what is used many times, such as a packed weight,
// and returns the function to measure.
struct Contender {
  std::string name;
  std::function<std::function<void()>(const Case&)> prepare;
};

// Contenders keep packed weights until the end, and borrow the operands.
std::vector<Contender> plait_contenders(Operands& operands);
std::vector<Contender> onednn_contenders(Operands& operands);

// "2.6.3"; empty: oneDNN is not available.
std::string onednn_version();

}  // namespace plait::bench
