// A product that needs nobody else: no communication, or nobody to communicate with.
#include "overlap/copy_block.h"
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
    copy_rows(call.operands.x, call.gathered);
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
