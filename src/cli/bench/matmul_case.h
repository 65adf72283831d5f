// The products that plait bench matmul measures: their operands, and what calls them.
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
  std::string weight;   // as it was asked for
  std::string backend;  // its name

  double flops() const;
  std::size_t weight_bytes() const;  // that a call must read, with its padding
  Dtype operand() const;             // what is multiplied: f32 or bf16
};

// Every m with every weight by every backend that was asked for. Error{invalid_argument} names what
// can't be done.
std::vector<MatmulCase> matmul_cases(const MatmulOptions& options);

// Memory for all cases. Error{invalid_argument} where this machine has not got enough.
class MatmulOperands {
 public:
  explicit MatmulOperands(const MatmulOptions& options);

  // Runs the product once. Must not outlive the operands.
  std::function<void()> call_of(const MatmulCase& one);

 private:
  using OwnWeight = std::variant<WeightView, PackedWeight>;

  void make_weight(const std::string& kind);
  std::vector<GemmCall> calls_of(const MatmulCase& one);

  const MatmulOptions& options_;
  Buffer x_;
  Buffer out_;
  std::map<Dtype, Buffer> plain_;  // the weights as they were before packing
  std::map<std::string, OwnWeight> weights_;
};

}  // namespace plait::cli
