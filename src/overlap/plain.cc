// A product that needs nobody else: no communication, or nobody to communicate with.
#include "base/clock.h"
#include "overlap/copy_block.h"
#include "overlap/operation.h"

namespace plait::overlap {
namespace {

class Plain final : public Operation {
 public:
  explicit Plain(Setting setting) : gemm_(std::move(setting.gemm)) {}

  void run(const Call& call) override {
    if (call.pace) return wait(call);
    gemm_.run({.x = {.view = call.operands.x},
               .weight = call.operands.weight,
               .out = call.out,
               .bias = call.operands.bias});
    copy_rows(call.operands.x, call.gathered);
  }

  std::size_t held_bytes() const override { return gemm_.held_bytes(); }

 private:
  void wait(const Call& call) const {
    const auto flops = static_cast<double>(2 * call.out.rows * gemm_.desc().n * gemm_.desc().k);
    base::sleep_until(base::now() + static_cast<base::Nanoseconds>(flops * *call.pace));
  }

  Gemm gemm_;
};

}  // namespace

std::unique_ptr<Operation> make_plain(Setting setting) {
  return std::make_unique<Plain>(std::move(setting));
}

}  // namespace plait::overlap
