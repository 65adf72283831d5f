// The operators: a matrix product and the collective before or after it, in one call that hides the
// communication behind the product.
//
//   plait::Communicator comm = plait::Communicator::connect();
//   const plait::PackedWeight w({.view = weight, .layout = plait::WeightLayout::out_in});
//   plait::matmul_all_reduce(x, w, y, comm);          // y = the sum over ranks of x·w
//
// There are P ranks, and this one is r. X is [rows, k]; W is [k, n], stored as its layout says.
// Rows are cut into balanced shards: the first (m mod P) ranks own one more (see balanced_shard()).
//
//   matmul_all_reduce      X [m, k_r]    W [k_r, n]   out [m, n]: the sum over ranks
//   matmul_reduce_scatter  X [m, k_r]    W [k_r, n]   out: this rank's rows of the sum
//   matmul_all_gather      X own rows    W [k, n]     out [m, n]: the rows of all ranks
//   all_gather_matmul      X own rows    W [k, n_r]   out [m, n_r]; also X [m, k] where asked for
//   reduce_scatter_matmul  X [m, k]      W [k, n]     out: this rank's rows of (sum of X)·W
//   all_reduce_matmul      X [m, k]      W [k, n]     out [m, n]: (sum of X)·W
//
// Partial products are summed over k in f32, rounded to the wire, and added over ranks in f32 as a
// tree (0 + 1, 2 + 3, ..., level by level). A bias is added, and the result is rounded once.
// Therefore the bits are the same on every rank, in every plan and run, over every transport, with
// any number of threads, and whatever the threads' modes of rounding and denormals. If ranks have
// equal shares of k that are nodes of the tree of all k, and the wire is f32, they are also the
// bits of one rank that has all k. Op::sum_tree() says whether this is so.
//
// Every rank of the communicator makes the call, with the same m, dtypes, wire and plan. If
// operands are refused (Error{invalid_argument}), nothing has been written. If ranks fail together
// (peer_lost, mismatch, timeout, ...), `out` and `gathered` are undefined.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "plait/communicator.h"
#include "plait/export.h"
#include "plait/operator.h"
#include "plait/packed_weight.h"
#include "plait/plan.h"
#include "plait/stream.h"
#include "plait/sum_tree.h"
#include "plait/tensor_view.h"
#include "plait/weight.h"

namespace plait {

// A hook for other work while a call multiplies and waits: to poll another communicator's
// collective, or to check whether the user wants to stop. The thread that made the call calls it
// now and then; if it throws, the call fails. It must not call an operator of the same
// communicator. It runs in the default float mode (to nearest, with denormals), whatever the caller
// has set, and a mode that it sets is undone.
using PollHook = std::function<void()>;

// A wire that suits the place of the ranks. On one host partial sums travel in f32, which costs
// little there and often gives the bits of one rank (sum_tree()). Between hosts, where bytes are
// what takes time, they travel in X's dtype, as in libraries that reduce the product's result.
inline constexpr Dtype kAutomaticWire = kNoDtype;

struct OpOptions {
  // How the operator works. All ranks give the same, except for threads and backend.

  // The dtype in which partial products travel: f32, bf16, f16, s8 or kAutomaticWire. A narrower
  // one sends fewer bytes, and rounds each partial product once more. s8 has a scale for each 64
  // columns of a row: it is off by at most 1/252 of the largest of them, and if one is no finite
  // number, all 64 are NaNs. Results always travel in out's dtype. If the sum comes first, it
  // travels in X's dtype.
  Dtype wire = Dtype::f32;
  std::optional<Plan> plan = {};  // empty: from `plans`, else the default

  // All ranks give a source, or none does. If ranks have shares of n or k, they exchange them to
  // ask for the whole problem's plan, unless `whole_size` is given: once in prepare(), and every
  // time in a blocking call. A blocking call asks for a plan for its rows; prepare() for desc.m
  // rows, for half of them, and so on. Sources know plans for the CPU: for a GPU none is asked.
  const PlanSource* plans = nullptr;

  // The sum of all ranks' shares of n (all_gather_matmul) or k (operators that add up partial
  // sums). All ranks give the same, or none does: between hosts it saves an exchange in every call.
  // Only the choice of a plan depends on it. -1: not given.
  std::int64_t whole_size = -1;

  // matmul: k is one of so many equal shares of a sum that the caller adds (GemmDesc::shares).
  std::int64_t shares = 1;

  int threads = 0;           // 0: as many as OpenMP would use
  std::string backend = {};  // of the product; empty: the best

  // Further operands of a single call. prepare() refuses these: Op::run() takes them.

  // [1, n], given by all ranks or by none. It is the same on ranks that have the same n. In
  // all_gather_matmul, where ranks have shares of n, it is the rank's share.
  ConstTensorView bias = {};
  TensorView gathered = {};  // all_gather_matmul: receives X [m, k]
  Stream stream = {};        // if operands are in a device's memory
  PollHook poll = {};
};

// Blocking. The first call of a kind prepares an operator for all later ones, with any plan and any
// number of rows: the number of tokens may change from call to call. Ranks make a mailbox together
// only if a call needs larger slots than all before it. The communicator keeps prepared operators
// of up to 64 kinds and 1 GiB (but always the last one), and drops the least recently used first.
// Mailboxes are kept: for each power of two of a slot's bytes at most one for sums that come back
// and one for all else. Communicator::mailbox_bytes() counts them.
PLAIT_EXPORT void matmul_all_reduce(const ConstTensorView& x, const Weight& weight,
                                    const TensorView& out, Communicator& comm,
                                    const OpOptions& options = {});
PLAIT_EXPORT void matmul_reduce_scatter(const ConstTensorView& x, const Weight& weight,
                                        const TensorView& out, Communicator& comm,
                                        const OpOptions& options = {});
PLAIT_EXPORT void matmul_all_gather(const ConstTensorView& x, const Weight& weight,
                                    const TensorView& out, Communicator& comm,
                                    const OpOptions& options = {});
PLAIT_EXPORT void all_gather_matmul(const ConstTensorView& x, const Weight& weight,
                                    const TensorView& out, Communicator& comm,
                                    const OpOptions& options = {});
PLAIT_EXPORT void reduce_scatter_matmul(const ConstTensorView& x, const Weight& weight,
                                        const TensorView& out, Communicator& comm,
                                        const OpOptions& options = {});
PLAIT_EXPORT void all_reduce_matmul(const ConstTensorView& x, const Weight& weight,
                                    const TensorView& out, Communicator& comm,
                                    const OpOptions& options = {});

// A product without communication; the other operators are compared with it.
PLAIT_EXPORT void matmul(const ConstTensorView& x, const Weight& weight, const TensorView& out,
                         Communicator& comm, const OpOptions& options = {});

// The description of an operator without its operands.
struct OpDesc {
  Operator op;
  std::int64_t m;  // rows of all ranks together, at most, in a call
  std::int64_t n;  // of this rank's weight
  std::int64_t k;
  Dtype x = Dtype::bf16;
  WeightKind weight = {};  // plait::Weight(w).kind()
  Dtype out = Dtype::bf16;
  bool gathered = false;  // all_gather_matmul: also returns X
  Device device = kCpu;   // on which all operands are; a blocking call has its x's

  bool operator==(const OpDesc&) const = default;
};

// The operands of one run. The optional ones are as in OpOptions.
struct OpCall {
  ConstTensorView x;
  Weight weight;
  TensorView out;
  ConstTensorView bias = {};
  TensorView gathered = {};
  Stream stream = {};
  PollHook poll = {};
};

// An operator prepared for many runs: it has its memory, its mailbox and its plans, so a run needs
// no negotiation. It must not outlive its communicator. Each run may pass another weight of the
// described sizes and kind, and any number of rows up to desc().m, the same on all ranks. The bits
// of a result don't depend on the number of rows that the operator was prepared for.
class PLAIT_EXPORT Op {
 public:
  class State;
  explicit Op(std::unique_ptr<State> state);
  Op(Op&&) noexcept;
  Op& operator=(Op&&) noexcept;
  ~Op();

  const OpDesc& desc() const;
  const Plan& plan() const;  // for desc().m rows; if no source was asked, for fewer too

  // Says whether its sums have the bits of one rank that has all k. Collective: ranks with shares
  // of k compare them.
  SumTree sum_tree() const;

  // Bytes that it keeps from call to call, without the mailbox, which others may share. The
  // product's working memory is allocated by the first run with as many rows.
  std::size_t held_bytes() const;

  // Collective.
  void run(const OpCall& call);

 private:
  State& state() const;

  std::unique_ptr<State> state_;
};

// Says whether the sums of an operator have the bits of one rank that has all k, if each of `world`
// ranks has a share of k like this rank's. Not collective. kAutomaticWire stands for one host's.
PLAIT_EXPORT SumTree sum_tree(const OpDesc& desc, int world, Dtype wire = Dtype::f32);

// Collective.
PLAIT_EXPORT Op prepare(const OpDesc& desc, Communicator& comm, const OpOptions& options = {});

}  // namespace plait
