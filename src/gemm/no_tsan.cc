// In builds without the thread sanitizer.
#include "gemm/tsan_annotate.h"

namespace plait::gemm {

void tsan_annotate(const TileKernel& /*kernel*/, const TileCall& /*call*/) {}
void tsan_annotate(const ConstTensorView& /*read*/) {}

}  // namespace plait::gemm
