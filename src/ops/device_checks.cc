#include "ops/device_checks.h"

#include <cstdint>
#include <string>

#include "base/check.h"
#include "overlap/device.h"

namespace plait::ops {
namespace {

// Bytes that the hardware moves at a time.
constexpr std::int64_t kAlignment = 16;

void check_dtype(Operator op, const char* what, Dtype dtype) {
  PLAIT_CHECK(dtype != Dtype::f32, name(op), ": ", what,
              " is f32; on a GPU there are bf16 and f16");
}

void check_aligned(Operator op, const char* what, const ConstTensorView& view) {
  if (view.bytes() == 0) return;
  const auto address = reinterpret_cast<std::uintptr_t>(view.data);
  PLAIT_CHECK(address % kAlignment == 0, name(op), ": ", what, " begins at ", view.data,
              ", which is not aligned to ", kAlignment, " bytes, as a GPU needs it");
  const std::int64_t apart = view.row_stride * static_cast<std::int64_t>(size_of(view.dtype));
  PLAIT_CHECK(view.rows == 1 || apart % kAlignment == 0, name(op), ": rows of ", what, " begin ",
              apart, " bytes apart, which is no multiple of ", kAlignment, ", as a GPU needs it");
}

// Calls visit(what, view) for each operand that has elements.
template <class Visit>
void for_operands(const OpCall& call, Visit&& visit) {
  const auto give = [&](const char* what, const ConstTensorView& view) {
    if (view.data != nullptr && view.rows > 0 && view.cols > 0) visit(what, view);
  };
  give("x", call.x);
  if (!call.weight.is_packed()) give("weight", call.weight.view().view);
  give("out", call.out);
  give("bias", call.bias);
  give("gathered", call.gathered);
}

void check_memory(const overlap::Devices& devices, Operator op, const OpCall& call) {
  for_operands(call, [&](const char* what, const ConstTensorView& view) {
    const std::string refusal = devices.refusal_of(view.data, view.device);
    PLAIT_CHECK(refusal.empty(), name(op), ": ", what, " was said to be on ", name(view.device),
                " but ", refusal);
  });
}

}  // namespace

void check_for_gpu(const OpDesc& desc) {
  PLAIT_CHECK(!desc.weight.is_packed, name(desc.op), ": the weight is packed (", name(desc.weight),
              "), which only the CPU reads; on a GPU there are weights of bf16 and f16 as views");
  check_dtype(desc.op, "x", desc.x);
  check_dtype(desc.op, "the weight", desc.weight.dtype);
}

void check_on_gpu(const OpDesc& desc, const OpCall& call) {
  check_aligned(desc.op, "x", call.x);
  check_aligned(desc.op, "weight", call.weight.view().view);
  if (desc.gathered) check_aligned(desc.op, "gathered", call.gathered);
  const overlap::Devices& devices = overlap::devices_for(desc.device, name(desc.op));
  check_memory(devices, desc.op, call);
  const std::string refusal = devices.refusal_of(call.stream, desc.device);
  PLAIT_CHECK(refusal.empty(), name(desc.op), ": the stream ", refusal,
              ", and the operands are on ", name(desc.device));
}

void check_on_cpu(Operator op, const OpCall& call) {
  if (const overlap::Devices* devices = overlap::loaded_devices()) check_memory(*devices, op, call);
}

}  // namespace plait::ops
