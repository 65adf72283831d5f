// Operators that need no peer: no communication, or a world of one rank.
#include "overlap/op_impl.h"
#include "tensor/copy_rows.h"

namespace plait::overlap {
namespace {

class Plain final : public OpImpl {
 public:
  explicit Plain(OpSpec spec) : multiplier_(std::move(spec.gemm), spec.group), group_(spec.group) {}

  void make_room(std::int64_t /*m*/, const Plan& /*plan*/) override {}

  void run(const Call& call) override {
    multiplier_.begin(call.operands, {.poll = poll_});
    multiplier_.multiply_rows(call.operands.x, call.out, [&] {
      if (call.poll != nullptr) (*call.poll)();
      if (group_ != nullptr) group_->show_product();
    });
    if (multiplier_.multiplies()) tensor::copy_rows(call.operands.x, call.gathered);
  }

  std::size_t held_bytes() const override { return multiplier_.held_bytes(); }

 private:
  void cut(std::int64_t /*m*/, const Plan& plan) override { poll_ = plan.poll; }

  Multiplier multiplier_;
  std::int64_t poll_ = 0;
  const comm::Group* group_;
};

}  // namespace

std::unique_ptr<OpImpl> make_plain(OpSpec spec) { return std::make_unique<Plain>(std::move(spec)); }

}  // namespace plait::overlap
