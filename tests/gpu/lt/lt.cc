#include "gpu/lt/lt.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "gpu/lt/lt_library.h"

namespace plait::gpu {
namespace {

using LtObject = std::unique_ptr<void, LtStatus (*)(void*)>;

void require(LtStatus status, const char* action) {
  if (status == kLtSuccess) return;
  base::fail(Code::system, "cuBLASLt could not ", action, ": ", lt_library().status_text(status));
}

cudaDataType cuda_type(Dtype dtype) {
  if (dtype == Dtype::bf16) return CUDA_R_16BF;
  return dtype == Dtype::f16 ? CUDA_R_16F : CUDA_R_32F;
}

LtObject make_handle() {
  void* handle = nullptr;
  require(lt_library().create(&handle), "start");
  return {handle, lt_library().destroy};
}

// cuBLASLt's matrices are column-major, and a row-major matrix is the transpose of a column-major
// one with the same bytes. The library is therefore asked for out^T [n, m] = w^T [n, k] * x^T
// [k, m]: its A is the weight, its B is x.
//   out_in: w is [n, k] row-major, which is [k, n] column-major: A is transposed.
//   in_out: w is [k, n] row-major, which is [n, k] column-major: A is not transposed.
LtObject make_desc(WeightLayout layout) {
  const LtLibrary& lt = lt_library();
  void* made = nullptr;
  require(lt.create_desc(&made, kLtComputeF32, CUDA_R_32F), "describe a product");
  LtObject desc(made, lt.destroy_desc);
  if (layout == WeightLayout::out_in) {
    require(lt.set_desc(made, LtDescAttribute::transpose_a, &kLtTransposed, sizeof kLtTransposed),
            "transpose the weight");
  }
  return desc;
}

// The layout of a row-major matrix, which is that of its transpose to cuBLASLt.
LtObject make_layout(Dtype dtype, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  void* layout = nullptr;
  require(
      lt_library().create_layout(&layout, cuda_type(dtype), static_cast<std::uint64_t>(columns),
                                 static_cast<std::uint64_t>(rows), stride == 0 ? columns : stride),
      "describe a matrix");
  return {layout, lt_library().destroy_layout};
}

LtObject make_weight_layout(const LtProblem& problem) {
  if (problem.layout == WeightLayout::out_in)
    return make_layout(problem.in, problem.n, problem.k, problem.w_stride);
  return make_layout(problem.in, problem.k, problem.n, problem.w_stride);
}

template <class Value>
void prefer(void* preference, LtPreference attribute, Value value) {
  require(lt_library().set_preference(preference, attribute, &value, sizeof value),
          "take a preference");
}

LtObject make_preference(const LtProblem& problem) {
  void* made = nullptr;
  require(lt_library().create_preference(&made), "make preferences");
  LtObject preference(made, lt_library().destroy_preference);
  prefer(made, LtPreference::most_workspace, std::uint64_t{problem.most_workspace});
  if (!problem.may_split_k) prefer(made, LtPreference::reduction_schemes, std::uint32_t{0});
  using enum LtPreference;
  for (const LtPreference operand : {alignment_a, alignment_b, alignment_c, alignment_d})
    prefer(made, operand, problem.alignment);
  return preference;
}

using Workspace = std::unique_ptr<void, cudaError_t (*)(void*)>;

Workspace allocate(std::size_t bytes) {
  void* data = nullptr;
  if (bytes == 0) return {nullptr, cudaFree};
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status != cudaSuccess) {
    base::fail(Code::system, "cuBLASLt's workspace of ", bytes,
               " bytes cannot be allocated: ", cudaGetErrorString(status));
  }
  return {data, cudaFree};
}

template <class Value>
Value property(const LtAlgorithm& algorithm, LtAlgorithmAttribute attribute) {
  Value value = {};
  std::size_t written = 0;
  require(lt_library().describe(&algorithm, attribute, &value, sizeof value, &written),
          "describe an algorithm");
  return value;
}

std::optional<std::string> refusal_of_device() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaSuccess && devices > 0) return std::nullopt;
  cudaGetLastError();
  return base::sentence("cuBLASLt has no device: ", cudaGetErrorString(status));
}

}  // namespace

struct LtProduct::State {
  explicit State(const LtProblem& of)
      : problem(of),
        handle(make_handle()),
        desc(make_desc(of.layout)),
        w(make_weight_layout(of)),
        x(make_layout(of.in, of.m, of.k, of.x_stride)),
        out(make_layout(of.out, of.m, of.n, of.out_stride)),
        preference(make_preference(of)) {}

  LtProblem problem;
  LtObject handle, desc, w, x, out, preference;
  std::vector<LtHeuristic> found;
  Workspace workspace{nullptr, cudaFree};
};

std::optional<std::string> LtProduct::refusal(const LtProblem& problem) {
  const bool reads = problem.in == Dtype::bf16 || problem.in == Dtype::f16;
  if (!reads) return "cuBLASLt is used for bf16 and f16 operands only";
  if (problem.out != problem.in && problem.out != Dtype::f32)
    return "cuBLASLt writes f32 or the dtype of its operands only";
  if (problem.m <= 0 || problem.n <= 0 || problem.k <= 0) {
    return base::sentence("cuBLASLt computes no product of m=", problem.m, " n=", problem.n,
                          " k=", problem.k);
  }
  if (lt_library().refusal) return lt_library().refusal;
  return refusal_of_device();
}

LtProduct::LtProduct(const LtProblem& problem) {
  if (const auto why = refusal(problem)) base::fail(Code::invalid_argument, *why);
  state_ = std::make_unique<State>(problem);
}

LtProduct::LtProduct(LtProduct&&) noexcept = default;
LtProduct& LtProduct::operator=(LtProduct&&) noexcept = default;
LtProduct::~LtProduct() = default;

int LtProduct::candidates(int most) {
  State& state = *state_;
  std::vector<LtHeuristic> found(static_cast<std::size_t>(most));
  int count = 0;
  const LtStatus status = lt_library().heuristic(
      state.handle.get(), state.desc.get(), state.w.get(), state.x.get(), state.out.get(),
      state.out.get(), state.preference.get(), most, found.data(), &count);
  if (status == kLtNotSupported)
    count = 0;
  else
    require(status, "find an algorithm");
  found.resize(static_cast<std::size_t>(count));
  std::erase_if(found, [](const LtHeuristic& one) { return one.state != kLtSuccess; });
  std::size_t bytes = 0;
  for (const LtHeuristic& one : found) bytes = std::max(bytes, one.workspace_bytes);
  state.workspace = allocate(bytes);
  state.found = std::move(found);
  return static_cast<int>(state.found.size());
}

LtChoice LtProduct::choice(int candidate) const {
  const LtHeuristic& one = state_->found.at(static_cast<std::size_t>(candidate));
  return {
      .algorithm = property<std::int32_t>(one.algorithm, LtAlgorithmAttribute::id),
      .tile = static_cast<int>(property<std::uint32_t>(one.algorithm, LtAlgorithmAttribute::tile)),
      .stages =
          static_cast<int>(property<std::uint32_t>(one.algorithm, LtAlgorithmAttribute::stages)),
      .k_parts = property<std::int32_t>(one.algorithm, LtAlgorithmAttribute::k_parts),
      .workspace_bytes = one.workspace_bytes,
  };
}

void LtProduct::run(const LtOperands& operands, int candidate, cudaStream_t stream) const {
  const State& state = *state_;
  const LtHeuristic& one = state.found.at(static_cast<std::size_t>(candidate));
  const float alpha = 1, beta = 0;
  require(lt_library().matmul(state.handle.get(), state.desc.get(), &alpha, operands.w,
                              state.w.get(), operands.x, state.x.get(), &beta, operands.out,
                              state.out.get(), operands.out, state.out.get(), &one.algorithm,
                              state.workspace.get(), one.workspace_bytes, stream),
          "start a product");
}

}  // namespace plait::gpu
