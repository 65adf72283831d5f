// Products to be measured, with their operands.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "measure/race.h"
#include "plait/buffer.h"
#include "plait/gemm.h"

namespace plait::measure {

struct MatmulSetup {
  std::vector<std::int64_t> m;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Dtype x = Dtype::bf16;
  Dtype out = Dtype::bf16;
  // The weight as in GemmDesc's text ("bf16", "s8:group=128"), packed before the call; or "plain":
  // X's dtype, not packed before.
  std::vector<std::string> weights;
  WeightLayout layout = WeightLayout::out_in;
  int threads = 1;
  std::vector<std::string> backends;  // "": the best; "all": all that can, except the reference
  std::int64_t columns = 0;           // of a window; 0: all at once
  bool accumulate = false;
  bool transposed_x = false;
  Effort effort;
};

// One product of a setup.
struct MatmulCase {
  GemmDesc desc;
  std::string weight;   // as typed
  std::string backend;  // the backend's name

  double flops() const;
  std::size_t weight_bytes() const;  // the bytes that a call must read, with padding
  Dtype operand() const;             // the dtype that is multiplied: f32 or bf16
};

// Combines every m, every weight and every backend that was requested. Error{invalid_argument}
// names an unsupported combination.
std::vector<MatmulCase> matmul_cases(const MatmulSetup& setup);

// Memory for all cases. Error{invalid_argument} if this machine does not have enough.
class MatmulOperands {
 public:
  explicit MatmulOperands(const MatmulSetup& setup);

  // Returns a function that runs the product once. It must not outlive the operands.
  std::function<void()> call_of(const MatmulCase& one);

 private:
  using OwnWeight = std::variant<WeightView, PackedWeight>;

  void make_weight(const std::string& kind);
  std::vector<GemmCall> calls_of(const MatmulCase& one);

  const MatmulSetup& setup_;
  Buffer x_;
  Buffer out_;
  std::map<Dtype, Buffer> plain_;  // the weights before packing
  std::map<std::string, OwnWeight> weights_;
};

}  // namespace plait::measure
