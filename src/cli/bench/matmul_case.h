// The products that plait bench matmul measures, with their operands.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cli/bench/matmul_options.h"
#include "plait/buffer.h"
#include "plait/gemm.h"

namespace plait::cli {

// A row of the table.
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
std::vector<MatmulCase> matmul_cases(const MatmulOptions& options);

// Memory for all cases. Error{invalid_argument} if this machine does not have enough.
class MatmulOperands {
 public:
  explicit MatmulOperands(const MatmulOptions& options);

  // Returns a function that runs the product once. It must not outlive the operands.
  std::function<void()> call_of(const MatmulCase& one);

 private:
  using OwnWeight = std::variant<WeightView, PackedWeight>;

  void make_weight(const std::string& kind);
  std::vector<GemmCall> calls_of(const MatmulCase& one);

  const MatmulOptions& options_;
  Buffer x_;
  Buffer out_;
  std::map<Dtype, Buffer> plain_;  // the weights before packing
  std::map<std::string, OwnWeight> weights_;
};

}  // namespace plait::cli
