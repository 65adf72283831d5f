#include "overlap/multiplier.h"

#include <thread>

namespace plait::overlap {

void Multiplier::begin(const Operands& operands, BatchHint hint) {
  panels_.forget();  // the call before may have failed
  executor_ = group_ == nullptr ? nullptr : comm::product_executor(*group_);
  operands_ = operands;
  hint_ = hint;
  first_ = true;
  is_packed_ = false;
}

void Multiplier::pack() {
  if (!multiplies() || operands_.x.rows == 0) return;
  const Span span(trace(), Lane::compute, "pack",
                  {.bytes = static_cast<std::int64_t>(operands_.x.bytes())});
  gemm_.pack({.view = operands_.x}, packed_);
  is_packed_ = true;
}

void Multiplier::multiply(const Request& request, PollStep poll_step) {
  GemmCall call = {.x = {.view = operands_.x},
                   .weight = operands_.weight,
                   .window = {.rows = request.rows, .columns = request.columns},
                   .bias = operands_.bias,
                   .packed_x = is_packed_ ? &packed_ : nullptr,
                   .outs = request.outs};
  run(call, poll_step);
}

void Multiplier::multiply_rows(const ConstTensorView& rows, const TensorView& out,
                               PollStep poll_step) {
  GemmCall call = {
      .x = {.view = rows}, .weight = operands_.weight, .out = out, .bias = operands_.bias};
  run(call, poll_step);
}

void Multiplier::run(GemmCall& call, PollStep poll_step) {
  if (hint_.rows_in_turns) call.panel_cache = &panels_;
  const Range columns = call.window.columns;
  const std::int64_t rows = call.window.rows.end < 0 ? call.x.view.rows : length(call.window.rows);
  const std::int64_t width = columns.end < 0 ? gemm_.desc().n : length(columns);
  const GemmDesc& desc = gemm_.desc();
  const Span span(trace(), Lane::compute, "product", {.flops = 2 * rows * width * desc.k});
  if (!multiplies()) {
    const bool first = std::exchange(first_, false);
    return executor_->multiply(
        {.rows = rows,
         .columns = width,
         .k = desc.k,
         .x_bytes = static_cast<double>(size_of(desc.x)),
         .weight_bytes =
             desc.quant ? desc.quant->bits / 8.0 : static_cast<double>(size_of(desc.weight)),
         .out_bytes = static_cast<double>(size_of(desc.out)),
         .poll = poll(),
         .all_rows = hint_.fused_rows,
         .all_columns = hint_.fused_rows > 0 ? desc.n : 0,
         .first = first},
        poll_step);
  }
  struct TileHook {
    PollStep poll_step;
    base::Nanoseconds poll;
    base::Nanoseconds next;
    std::thread::id caller;
  } hook = {.poll_step = poll_step,
            .poll = poll(),
            .next = base::now() + poll(),
            .caller = std::this_thread::get_id()};
  // Several threads share the product, and only the caller's may send and receive.
  call.on_tile = [&hook](const Tile& /*tile*/) {
    if (std::this_thread::get_id() != hook.caller || base::now() < hook.next) return;
    hook.poll_step();
    hook.next = base::now() + hook.poll;
  };
  gemm_.run(call);
}

}  // namespace plait::overlap
