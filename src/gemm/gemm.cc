#include "plait/gemm.h"

#include <algorithm>
#include <atomic>

#include "base/check.h"
#include "base/default_floats.h"
#include "base/parallel.h"
#include "gemm/backends.h"
#include "gemm/checks.h"
#include "gemm/packed_input.h"
#include "gemm/panel_cache.h"
#include "gemm/product.h"
#include "gemm/quant_panels.h"
#include "gemm/reference.h"
#include "gemm/running.h"

namespace plait {

// The kernel, and the memory that it works in. Without a kernel the reference multiplies.
class Gemm::State {
 public:
  State(const GemmDesc& desc, std::string_view backend, std::unique_ptr<gemm::TileKernel> kernel,
        int threads)
      : desc_(desc), backend_(backend), kernel_(std::move(kernel)), threads_(threads) {}

  const GemmDesc& desc() const { return desc_; }
  std::string_view backend() const { return backend_; }
  std::size_t held_bytes() const { return workspace_.bytes(); }

  void run(const GemmCall& call) {
    gemm::check(desc_, call);
    const gemm::Running running(is_running_, "matmul: this Gemm");
    const base::DefaultFloats floats;
    const gemm::Depth depth = gemm::depth_of(desc_);
    if (call.packed_x != nullptr) call.packed_x->state().check(call.x, depth, kernel_.get());
    PanelCache::State* const kept = kept_for(call);
    if (kept != nullptr) kept->check(call.weight.view(), depth.padded());
    const gemm::Task task = {.call = call,
                             .rows = gemm::resolved(call.window.rows, call.x.rows()),
                             .columns = gemm::resolved(call.window.columns, desc_.n),
                             .depth = depth,
                             .leaves = gemm::Leaves(depth, desc_.shares),
                             .packed_rows = rows_of(call.packed_x),
                             .bias = bias_of(call),
                             .kept = kept,
                             .threads = base::thread_count(threads_)};
    if (gemm::size(task.rows) == 0 || gemm::size(task.columns) == 0) return;
    if (kernel_ == nullptr) return gemm::run_reference(task);
    gemm::Product(*kernel_, task, workspace_).run();
  }

  void pack(const GemmInput& x, PackedInput& to) const {
    gemm::check_input(desc_, x);
    to.state().pack(x, gemm::depth_of(desc_), kernel_.get(), base::thread_count(threads_));
  }

 private:
  static const gemm::Rows* rows_of(const PackedInput* input) {
    return input == nullptr ? nullptr : input->state().rows();
  }

  // Kernels that read a weight in place pack nothing, and a packed weight is packed.
  PanelCache::State* kept_for(const GemmCall& call) const {
    const bool packs = kernel_ != nullptr && !call.weight.is_packed();
    return packs && call.panel_cache != nullptr ? &call.panel_cache->state() : nullptr;
  }

  const float* bias_of(const GemmCall& call) {
    if (call.bias.data == nullptr || call.bias.cols == 0) return nullptr;
    const auto n = static_cast<std::size_t>(desc_.n);
    std::byte* bias = gemm::Workspace::at_least(workspace_.bias, n * sizeof(float));
    convert(call.bias.data, call.bias.dtype, bias, Dtype::f32, n);
    return reinterpret_cast<const float*>(bias);
  }

  GemmDesc desc_;
  std::string_view backend_;
  std::unique_ptr<gemm::TileKernel> kernel_;
  int threads_;
  gemm::Workspace workspace_;
  std::atomic<bool> is_running_{false};
};

Gemm::Gemm(std::unique_ptr<State> state) : state_(std::move(state)) {}
Gemm::Gemm(Gemm&&) noexcept = default;
Gemm& Gemm::operator=(Gemm&&) noexcept = default;
Gemm::~Gemm() = default;

Gemm::State& Gemm::state() const {
  PLAIT_CHECK(state_, "matmul: this Gemm has been moved to another, which multiplies");
  return *state_;
}

const GemmDesc& Gemm::desc() const { return state().desc(); }
std::string_view Gemm::backend() const { return state().backend(); }
std::size_t Gemm::held_bytes() const { return state().held_bytes(); }
void Gemm::run(const GemmCall& call) { state().run(call); }
void Gemm::pack(const GemmInput& x, PackedInput& to) const { state().pack(x, to); }

Gemm select_gemm(const GemmDesc& desc, const GemmOptions& options) {
  gemm::check(desc);
  base::check_threads(options.threads, "matmul");
  std::string names;
  const char* refusal = nullptr;
  for (const gemm::Backend& backend : gemm::backends()) {
    const std::string known = std::string(backend.name) + ", ";
    if (names.find(known) == std::string::npos) names += known;
    if (!options.backend.empty() && options.backend != backend.name) continue;
    refusal = gemm::refusal(backend, desc);
    if (refusal != nullptr) continue;
    return Gemm(std::make_unique<Gemm::State>(desc, backend.name, backend.create(backend.operand),
                                              options.threads));
  }
  const bool refused = refusal != nullptr && !options.backend.empty();
  PLAIT_CHECK(!refused, "matmul: backend ", options.backend, " can't do ", name(desc), ": ",
              refusal);
  PLAIT_CHECK(options.backend.empty() || options.backend == gemm::kReference,
              "matmul: there is no backend ", options.backend, "; there are ", names,
              gemm::kReference);
  return Gemm(std::make_unique<Gemm::State>(desc, gemm::kReference, nullptr, options.threads));
}

std::vector<GemmChoice> explain_gemm(const GemmDesc& desc) {
  gemm::check(desc);
  std::vector<GemmChoice> walk;
  for (const gemm::Backend& backend : gemm::backends()) {
    const char* refusal = gemm::refusal(backend, desc);
    walk.push_back({.backend = backend.name,
                    .operand = backend.operand,
                    .refusal = refusal == nullptr ? "" : refusal});
  }
  walk.push_back({.backend = gemm::kReference, .operand = Dtype::f32, .refusal = ""});
  return walk;
}

}  // namespace plait
