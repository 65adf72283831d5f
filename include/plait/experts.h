// A layer of experts that are spread over the ranks: rows go to the ranks of their experts and
// back.
//
//   plait::ExpertParallelMLP layer({.hidden = 2048, .inner = 768, .experts = 128, .top = 8,
//                                  .weight = plait::Weight(up[0]).kind()}, comm);
//   layer.forward({.x = x, .ids = ids, .weights = weights, .up = up, .down = down, .out = out});
//
// Each rank has rows of its own, any number of them, and some of the experts. For a row t and its
// slots j = 0 ... top - 1, whose experts e the router has chosen:
//
//   a(t, j) = activation(x[t] * up[e] + up_bias[e])         f32, rounded to x's dtype
//   y(t, j) = a(t, j) * down[e] + down_bias[e]              rounded to the wire
//   out[t]  = weights[t, 0] * y(t, 0) + weights[t, 1] * y(t, 1) + ...
//
// The last sum is taken in f32, in the order of the slots, and rounded once. So a row has the bits
// that one rank with all experts gives, for every number of ranks, placement, schedule, transport,
// order of arrival and batch: they depend on the row, its experts and weights, and the backend of
// the product, which is to be the same on all ranks. A slot without an expert (-1) adds nothing. A
// row may have the same expert twice.
//
// All ranks make the same calls, those without rows too. A refused call has written nothing. After
// a lost peer `out` is undefined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plait/communicator.h"
#include "plait/export.h"
#include "plait/ops.h"
#include "plait/plan.h"
#include "plait/tensor_view.h"
#include "plait/weight.h"

namespace plait {

inline constexpr std::int64_t kMostExperts = 4096;
inline constexpr std::int64_t kMostExpertsOfARow = 64;
inline constexpr std::int64_t kMostPartsOfAnExpert = 16;

// The function between the two products, element by element: gate * sigmoid(alpha * gate) *
// (up + added), with gate at most `limit`, and up between -limit and limit. sigmoid(z) is
// 1 / (1 + exp(-z)).
enum class ExpertActivation : std::uint8_t {
  swiglu,              // the first product has 2 * inner outputs, all gates first
  swiglu_interleaved,  // gate, up, gate, up, ...
  silu,                // gates alone, `inner` of them, without (up + added)
};

PLAIT_EXPORT std::string_view name(ExpertActivation activation);

// The place at which a slot's weight is multiplied: with y(t, j), or with the result of the
// activation, before that is rounded. The bits differ.
enum class ExpertWeightsAt : std::uint8_t { combine, activation };

PLAIT_EXPORT std::string_view name(ExpertWeightsAt place);

// The description of a layer, the same on all ranks.
struct ExpertsDesc {
  std::int64_t hidden;   // columns of x and out
  std::int64_t inner;    // inputs of `down`, of each part
  std::int64_t experts;  // on all ranks together
  std::int64_t top;      // slots of a row

  Dtype dtype = Dtype::bf16;  // of x
  Dtype out = Dtype::bf16;
  Dtype wire = Dtype::f32;  // the dtype in which results travel back: f32, bf16 or f16
  WeightKind weight = {};   // of all experts: plait::Weight(w).kind()
  ExpertActivation activation = ExpertActivation::swiglu;
  float alpha = 1.0F;
  float limit = std::numeric_limits<float>::infinity();
  float added = 0.0F;
  ExpertWeightsAt weights_at = ExpertWeightsAt::combine;

  // Each expert is cut in so many equal parts of its inner features (gates, ups, inputs of `down`),
  // which may be on different ranks. y(t, j) is the sum of the parts' results in f32, as a tree:
  // 0 + 1, 2 + 3, ... It has the bits of a whole expert if `wire` is f32, parts are nodes of the
  // sum over k (see sum_tree()) and `down` has no bias, else those of so many parts. First parts
  // alone use a bias of `down`, before other parts are added.
  std::int64_t parts = 1;

  // The rank of each part: expert 0's part 0, its part 1, ... Empty: as even as it can be, in
  // order; the first ranks have one more. But if the world is a multiple of `parts`, each run of
  // `parts` ranks has experts of its own, of which each of these ranks has a part.
  std::vector<int> ranks = {};
};

struct ExpertsOptions {
  // serial: all rows go to their experts, are multiplied, and come back. fused: rows of other ranks
  // are multiplied as they come, and this rank's own while none are there; results leave as they
  // are made. Both give the same bits. All ranks give the same.
  Schedule schedule = Schedule::fused;

  // If this source has a plan for the layer (see PlanKey), the plan's schedule is taken instead.
  const PlanSource* plans = nullptr;

  // All ranks have the same rows, ids and weights, as in decoding. No row goes to its experts.
  // Their results go to the rank that owns the row (see balanced_shard()), which adds them, and its
  // sums go to all. The same bits again. All ranks give the same.
  bool replicated = false;

  int threads = 0;           // 0: as many as OpenMP would use
  std::string backend = {};  // of the products, the same on all ranks; empty: this processor's best
};

// Other work of the model. It calls poll_step now and then, so that rows go on travelling.
using WorkBeside = std::function<void(const std::function<void()>& poll_step)>;

struct ExpertsForward {
  ConstTensorView x;                  // [rows, hidden]
  std::span<const std::int64_t> ids;  // [rows * top]: experts, or -1
  std::span<const float> weights;     // [rows * top]

  // The weights of this rank's experts, or parts of experts, in the order of experts_of().
  std::span<const Weight> up;                         // hidden -> inner, or 2 * inner
  std::span<const Weight> down;                       // inner -> hidden
  std::span<const ConstTensorView> up_biases = {};    // [1, outputs] each; none: no bias
  std::span<const ConstTensorView> down_biases = {};  // [1, hidden] each

  TensorView out;  // [rows, hidden]

  // backward() follows, on all ranks: those that say otherwise are refused. A rank that makes no
  // backward call would leave the others waiting. No matter in a replicated batch.
  bool gradients = false;

  PollHook poll = {};  // see plait/ops.h

  // Called once, as soon as this rank would wait for others, or when it has not had to: a shared
  // expert, whose result the caller adds. The thread that made the call calls it, and it must not
  // call an operator of the same communicator. If it throws, the call fails. Not in backward().
  WorkBeside beside = {};
};

// Gradients for the rows of a forward call, which is given again; its `out` is not used. Nothing is
// kept from forward: rows travel again, and the first product is made again. A gradient that is
// empty is not made. Sums of weights' gradients are those of an expert's rows in the order of ranks
// and their rows: the bits of one rank, if ranks have consecutive rows. Not for replicated batches.
struct ExpertsBackward {
  ExpertsForward forward;
  ConstTensorView grad_out;  // [rows, hidden], of x's dtype

  // For packed weights: those with inputs and outputs exchanged, of the same kind.
  std::span<const Weight> turned_up = {};
  std::span<const Weight> turned_down = {};

  TensorView grad_x = {};                             // [rows, hidden]
  std::span<float> grad_weights = {};                 // [rows * top]; 0 without an expert
  std::span<const TensorView> grad_up = {};           // [outputs, hidden] of each own expert, or as
  std::span<const TensorView> grad_down = {};         // the weight lies; [hidden, inner]
  std::span<const TensorView> grad_up_biases = {};    // [1, outputs]
  std::span<const TensorView> grad_down_biases = {};  // [1, hidden]
  bool accumulate = false;                            // adds to the gradients of weights and biases
};

// How many rows a call has brought to this rank's experts, from this rank and from others, and how
// many of this rank's rows are for the experts of each rank. In a replicated batch none travel, and
// those of the whole batch are counted.
struct ExpertRows {
  std::vector<std::int64_t> of_ranks;    // by the rank that they came from, or that owns them in a
                                         // replicated batch
  std::vector<std::int64_t> of_experts;  // by this rank's expert
  std::vector<std::int64_t> to_ranks;    // by the rank of their experts
};

class PLAIT_EXPORT ExpertParallelMLP {
 public:
  class State;

  // Not collective. The communicator must outlive the layer.
  ExpertParallelMLP(const ExpertsDesc& desc, Communicator& comm,
                    const ExpertsOptions& options = {});
  ExpertParallelMLP(ExpertParallelMLP&&) noexcept;
  ExpertParallelMLP& operator=(ExpertParallelMLP&&) noexcept;
  ~ExpertParallelMLP();

  const ExpertsDesc& desc() const;
  Schedule schedule() const;  // that of the plan, or of the options

  // The experts of a rank, or parts e * parts + p, in the order in which it gives their weights.
  std::vector<std::int64_t> experts_of(int rank) const;

  // Collective.
  void forward(const ExpertsForward& call);
  void backward(const ExpertsBackward& call);

  // The rows of the last forward() that has returned.
  const ExpertRows& rows() const;

  // Bytes that it keeps from call to call.
  std::size_t held_bytes() const;

 private:
  State& state() const;  // refuses if it was moved to another

  std::unique_ptr<State> state_;
};

}  // namespace plait
