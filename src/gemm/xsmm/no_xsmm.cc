#include "gemm/xsmm/factory.h"

namespace plait::gemm::xsmm {

const char* refusal(Dtype) { return "this plait was built without libxsmm"; }

std::unique_ptr<TileKernel> create(Dtype) { return nullptr; }

}  // namespace plait::gemm::xsmm
