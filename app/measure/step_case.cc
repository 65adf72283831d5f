#include "measure/step_case.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <variant>

#include "base/check.h"
#include "comm/session/state.h"
#include "measure/memory.h"
#include "ops/shapes.h"
#include "plan/sizes.h"
#include "tensor/fill.h"

namespace plait::measure {
namespace {

constexpr std::uint64_t kSeeds = 16;  // per matrix and rank
// The marks around a call of a layer.
constexpr const char* kCalled = "layer";
constexpr const char* kDone = "layer done";

Buffer random_matrix(Dtype dtype, std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  Buffer buffer = Buffer::for_tensor(dtype, rows, cols, {.huge_pages = true});
  tensor::fill_random(buffer.view(dtype, rows, cols), seed);
  return buffer;
}

Buffer zeros(Dtype dtype, std::int64_t rows, std::int64_t cols) {
  Buffer buffer = Buffer::for_tensor(dtype, rows, cols, {.huge_pages = true});
  if (buffer.bytes() > 0) std::memset(buffer.data(), 0, buffer.bytes());
  return buffer;
}

LinearOptions options_of(const StepSetup& setup, const Plan& plan) {
  return {.sequence_parallel = setup.sequence_parallel,
          .recompute_all_gather = !setup.keep_gathered,
          .column_backward = setup.column_backward,
          .operators = {.wire = setup.wire, .plan = plan, .threads = setup.threads}};
}

// This rank's share of a layer, and the whole of its other side.
struct Sides {
  std::int64_t in;
  std::int64_t out;
};

Sides sides_of(const plan::LinearLayer& layer, int rank, int world) {
  const bool row = layer.kind == plan::LinearKind::row;
  return {.in = row ? ops::share_of(layer.in, rank, world) : layer.in,
          .out = row ? layer.out : ops::share_of(layer.out, rank, world)};
}

}  // namespace

// Counts what a case allocates: rows and their gradients, weights, and gradients with the copies
// that are kept for comparison. Steps that decode have no gradients, but memory as large as the
// weights is read beside them.
void check_memory(const StepSetup& setup, int world) {
  const auto dtype = static_cast<double>(size_of(setup.dtype));
  const double beside = setup.decodes ? dtype : 2 * static_cast<double>(size_of(setup.grad_weight));
  double bytes = 0;
  for (const plan::LinearLayer& layer : setup.linears) {
    const auto [in, out] = sides_of(layer, 0, world);
    const double weights = static_cast<double>(in) * static_cast<double>(out);
    bytes += setup.layers * weights * (dtype + beside) +
             2 * dtype * static_cast<double>(setup.tokens) * static_cast<double>(in + out);
  }
  check_memory(world * bytes, setup.model.empty()
                                  ? "the step"
                                  : "the step (less with a smaller --scale or fewer --blocks)");
}

std::int64_t weight_bytes(const StepSetup& setup, const plan::LinearLayer& layer, int rank,
                          int world) {
  const auto [in, out] = sides_of(layer, rank, world);
  return in * out * static_cast<std::int64_t>(size_of(setup.dtype));
}

std::vector<TimeInterval> layer_calls(const trace::RankRecords& rank) {
  std::vector<TimeInterval> calls;
  for (const trace::Record& record : rank.records) {
    if (record.kind != trace::Kind::mark) continue;
    const std::string_view label = rank.labels[record.label];
    if (label == kCalled) calls.push_back({.begin = record.begin, .end = record.begin});
    if (label == kDone && !calls.empty()) calls.back().end = record.begin;
  }
  return calls;
}

StepCase::StepCase(const StepSetup& setup, const Communicator& comm)
    : setup_(setup), rank_(comm.rank()), world_(comm.world()) {
  const std::int64_t gradients = setup.decodes ? 0 : setup.tokens;  // rows of them
  for (const plan::LinearLayer& layer : setup.linears) {
    const auto seed = shared_.size() * kSeeds;
    const auto [in, out] = sides_of(layer, rank_, world_);
    shared_.push_back({.layer = layer,
                       .in = in,
                       .out = out,
                       .x = random_matrix(setup.dtype, setup.tokens, in, seed + 1),
                       .result = zeros(setup.dtype, setup.tokens, out),
                       .grad_out = random_matrix(setup.dtype, gradients, out, seed + 2),
                       .grad_x = zeros(setup.dtype, gradients, in)});
  }
  for (int block = 0; block < setup.layers; ++block) {
    for (std::size_t i = 0; i < shared_.size(); ++i) {
      const auto seed = (ones_.size() + 100) * kSeeds + static_cast<std::uint64_t>(rank_) * 1000003;
      ones_.push_back({.shared = i,
                       .weight = random_matrix(setup.dtype, shared_[i].out, shared_[i].in, seed),
                       .gradient = zeros(setup.grad_weight, setup.decodes ? 0 : shared_[i].out,
                                         shared_[i].in)});
    }
  }
}

// A rank that runs alone has all rows everywhere.
TensorView StepCase::rows_of(const Buffer& buffer, std::int64_t cols, bool shard,
                             bool alone) const {
  const TensorView all = buffer.view(setup_.dtype, setup_.tokens, cols);
  if (!shard || alone || !setup_.sequence_parallel) return all;
  const Range own = ops::shard_of(setup_.tokens, rank_, world_);
  return all.row_range(own.begin, own.end);
}

class StepCase::Steps final : public Runner {
 public:
  Steps(const StepCase& one, const Plan& plan, Communicator& comm, bool alone)
      : case_(one), comm_(comm), alone_(alone), states_(one.ones_.size()) {
    const LinearOptions options = options_of(one.setup_, plan);
    for (const One& each : one.ones_) {
      const Shared& shared = one.shared_[each.shared];
      const LinearDesc desc = {.inputs = shared.in,
                               .outputs = shared.out,
                               .layout = WeightLayout::out_in,
                               .weight = {.dtype = one.setup_.dtype}};
      if (is_row(shared)) {
        layers_.emplace_back(RowParallelLinear(desc, comm, options));
      } else {
        layers_.emplace_back(ColumnParallelLinear(desc, comm, options));
      }
    }
  }

  void run(base::Nanoseconds pause) override {
    Trace* const trace = case_.setup_.decodes ? comm_.state().trace() : nullptr;
    const base::Nanoseconds begin = base::now();
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const Shared& shared = case_.shared_[case_.ones_[i].shared];
      const LinearForward call = {
          .x = x(shared, shared.x), .weight = weight(i), .out = out(shared, shared.result)};
      if (trace != nullptr) trace->mark(Lane::compute, kCalled);
      std::visit([&](auto& layer) { layer.forward(call, state(i)); }, layers_[i]);
      if (trace != nullptr) trace->mark(Lane::compute, kDone);
      rest(pause);
    }
    forward_ = base::now() - begin;
    if (case_.setup_.decodes) return;
    for (std::size_t i = layers_.size(); i-- > 0;) {
      const One& one = case_.ones_[i];
      const Shared& shared = case_.shared_[one.shared];
      const LinearBackward call = {
          .x = x(shared, shared.x),
          .weight = weight(i),
          .grad_out = out(shared, shared.grad_out),
          .grad_x = x(shared, shared.grad_x),
          .grad_weight = one.gradient.view(case_.setup_.grad_weight, shared.out, shared.in),
          .accumulate = true};
      std::visit([&](auto& layer) { layer.backward(call, &states_[i]); }, layers_[i]);
      rest(pause);
    }
  }

  base::Nanoseconds forward_time() const override { return forward_; }

 private:
  static bool is_row(const Shared& shared) { return shared.layer.kind == plan::LinearKind::row; }
  // Without backward there is none to keep.
  LinearState* state(std::size_t i) { return case_.setup_.decodes ? nullptr : &states_[i]; }
  WeightView weight(std::size_t i) const {
    const One& one = case_.ones_[i];
    const Shared& shared = case_.shared_[one.shared];
    return {.view = one.weight.view(case_.setup_.dtype, shared.out, shared.in),
            .layout = WeightLayout::out_in};
  }
  TensorView x(const Shared& shared, const Buffer& buffer) const {
    return case_.rows_of(buffer, shared.in, !is_row(shared), alone_);
  }
  TensorView out(const Shared& shared, const Buffer& buffer) const {
    return case_.rows_of(buffer, shared.out, is_row(shared), alone_);
  }
  static void rest(base::Nanoseconds pause) {
    if (pause > 0) base::sleep_until(base::now() + pause);
  }

  const StepCase& case_;
  Communicator& comm_;
  bool alone_;
  std::vector<std::variant<ColumnParallelLinear, RowParallelLinear>> layers_;
  std::vector<LinearState> states_;
  base::Nanoseconds forward_ = 0;
};

std::unique_ptr<StepCase::Runner> StepCase::runner(const Plan& plan, Communicator& comm) const {
  return std::make_unique<Steps>(*this, plan, comm, false);
}

std::unique_ptr<StepCase::Runner> StepCase::products(Communicator& alone) const {
  return std::make_unique<Steps>(*this, Plan{.schedule = Schedule::serial}, alone, true);
}

int StepCase::pauses() const { return setup_.passes() * static_cast<int>(ones_.size()); }

std::int64_t StepCase::weight_bytes() const {
  std::int64_t bytes = 0;
  for (const One& one : ones_)
    bytes += measure::weight_bytes(setup_, shared_[one.shared].layer, rank_, world_);
  return bytes;
}

std::vector<ConstTensorView> StepCase::results() const {
  std::vector<ConstTensorView> views;
  for (const Shared& one : shared_) {
    const bool row = one.layer.kind == plan::LinearKind::row;
    views.push_back(rows_of(one.result, one.out, row, false));
    if (!setup_.decodes) views.push_back(rows_of(one.grad_x, one.in, !row, false));
  }
  if (setup_.decodes) return views;
  for (const One& one : ones_) {
    const Shared& shared = shared_[one.shared];
    views.push_back(one.gradient.view(setup_.grad_weight, shared.out, shared.in));
  }
  return views;
}

// Fills results with NaNs, so that elements that are not written differ. Gradients accumulate, so
// they start from zero.
void StepCase::clear_results() {
  const auto fill = [](const Buffer& buffer, int byte) {
    if (buffer.bytes() > 0) std::memset(buffer.data(), byte, buffer.bytes());
  };
  for (const Shared& one : shared_) {
    fill(one.result, 0xFF);
    fill(one.grad_x, 0xFF);
  }
  for (const One& one : ones_) fill(one.gradient, 0);
}

void StepCase::keep_results() {
  const std::vector<ConstTensorView> views = results();
  if (kept_.empty()) {
    for (const ConstTensorView& view : views)
      kept_.emplace_back(view.bytes(), BufferOptions{.huge_pages = true});
  }
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (views[i].bytes() > 0) std::memcpy(kept_[i].data(), views[i].data, views[i].bytes());
  }
}

// For each layer, the bytes that a rank sends to a peer: its own shard of rows, or the peer's. No
// column layer sends any in a step that decodes.
double StepCase::bytes_on_link() const {
  const auto shard = static_cast<double>(ops::share_of(setup_.tokens, 0, world_));
  const auto as_is = static_cast<double>(size_of(setup_.dtype));
  double bytes = 0;
  for (const One& one : ones_) {
    const plan::LinearLayer& layer = shared_[one.shared].layer;
    const bool row = layer.kind == plan::LinearKind::row;
    if (setup_.decodes && !row) continue;
    const std::int64_t columns = row ? layer.out : layer.in;
    const auto width = static_cast<double>(columns);
    const auto sums = static_cast<double>(plan::wire_bytes(setup_.wire, /*rows=*/1, columns));
    const bool twice = !row && setup_.sequence_parallel && !setup_.keep_gathered;
    bytes += shard * (width * as_is * (twice ? 2 : 1) + sums);
  }
  return bytes;
}

bool StepCase::has_same_results() const {
  const std::vector<ConstTensorView> views = results();
  PLAIT_CHECK(views.size() == kept_.size(), "no results were stored for comparison");
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (views[i].bytes() > 0 && std::memcmp(kept_[i].data(), views[i].data, views[i].bytes()) != 0)
      return false;
  }
  return true;
}

}  // namespace plait::measure
