#include "gemm/amx/factory.h"

namespace plait::gemm::amx {

const char* refusal(Dtype) { return "this processor is not an x86"; }

std::unique_ptr<TileKernel> create(Dtype) { return nullptr; }

}  // namespace plait::gemm::amx
