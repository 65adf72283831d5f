// A product that needs nobody else: no communication, or nobody to communicate with.
#include <algorithm>
#include <cstring>

#include "overlap/calls.h"
#include "overlap/operation.h"

namespace plait::overlap {
namespace {

class Plain final : public Operation {
 public:
  explicit Plain(Setting setting) : gemm_(std::move(setting.gemm)) {}

  void run(const Call& call) override {
    if (call.work == Work::communication) return;
    gemm_.run({.x = {.view = call.operands.x},
               .weight = call.operands.weight,
               .out = call.out,
               .bias = call.operands.bias});
    const ConstTensorView& x = call.operands.x;
    const TensorView& copy = call.gathered;
    if (copy.data == nullptr || x.cols == 0) return;
    for (std::int64_t row = 0; row < x.rows; ++row)
      std::memcpy(copy.row(row), x.row(row), x.row_bytes());
  }

  std::size_t held_bytes() const override { return 0; }

 private:
  Gemm gemm_;
};

}  // namespace

std::unique_ptr<Operation> make_plain(Setting setting) {
  return std::make_unique<Plain>(std::move(setting));
}

}  // namespace plait::overlap
