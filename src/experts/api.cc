// The public class, which hands over to the layer.
#include <array>

#include "base/check.h"
#include "experts/layer.h"

namespace plait {

std::string_view name(ExpertActivation activation) {
  constexpr std::array<std::string_view, 3> kNames = {"swiglu", "swiglu_interleaved", "silu"};
  const auto index = static_cast<std::size_t>(activation);
  return index < kNames.size() ? kNames[index] : "unknown";
}

std::string_view name(ExpertWeightsAt place) {
  return place == ExpertWeightsAt::combine ? "combine" : "activation";
}

ExpertParallelMLP::ExpertParallelMLP(const ExpertsDesc& desc, Communicator& comm,
                                     const ExpertsOptions& options)
    : state_(std::make_unique<State>(desc, comm, options)) {}
ExpertParallelMLP::ExpertParallelMLP(ExpertParallelMLP&&) noexcept = default;
ExpertParallelMLP& ExpertParallelMLP::operator=(ExpertParallelMLP&&) noexcept = default;
ExpertParallelMLP::~ExpertParallelMLP() = default;

ExpertParallelMLP::State& ExpertParallelMLP::state() const {
  PLAIT_CHECK(state_, experts::kLayer, ": this layer was moved to another");
  return *state_;
}

const ExpertsDesc& ExpertParallelMLP::desc() const { return state().desc(); }

Schedule ExpertParallelMLP::schedule() const { return state().schedule(); }

std::vector<std::int64_t> ExpertParallelMLP::experts_of(int rank) const {
  const experts::Placement& placement = state().placement();
  PLAIT_CHECK(rank >= 0 && rank < placement.world(), experts::kLayer, ": rank ", rank, " of ",
              placement.world());
  return placement.experts_of(rank);
}

void ExpertParallelMLP::forward(const ExpertsForward& call) { state().forward(call); }
void ExpertParallelMLP::backward(const ExpertsBackward& call) { state().backward(call); }
const ExpertRows& ExpertParallelMLP::rows() const { return state().rows(); }
std::size_t ExpertParallelMLP::held_bytes() const { return state().held_bytes(); }

}  // namespace plait
