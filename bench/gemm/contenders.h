// Who is measured. A case is called "SHAPE/DTYPE/WHO/ROWS", such as "square/bf16/plait/512".
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "operands.h"

namespace plait::bench {

struct Case {
  Dtype dtype;  // of x, of the weight as it came, and of the result
  std::int64_t rows;
};

// One way to do it. prepare() makes ready what is used many times, such as a packed weight, and
// returns what is measured.
struct Contender {
  std::string name;
  std::function<std::function<void()>(const Case&)> prepare;
};

// They keep packed weights until the end, and borrow the operands.
std::vector<Contender> plait_contenders(Operands& operands);
std::vector<Contender> onednn_contenders(Operands& operands);

// "2.6.3"; empty: it is not here.
std::string onednn_version();

}  // namespace plait::bench
