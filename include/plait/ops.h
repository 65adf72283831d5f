// The operators: a matrix product and the collective that needs it or makes it, as one call in
// which the one hides the other.
//
//   plait::Communicator comm = plait::Communicator::connect();
//   const plait::PackedWeight w({.view = weight, .layout = plait::WeightLayout::out_in});
//   plait::matmul_all_reduce(x, w, y, comm);          // y = the sum over ranks of x·w
//
// P ranks, this one is r; X is [rows, k]; W is [k, n], lying as its layout says. Rows are cut in
// balanced shards: the first (m mod P) ranks own one more (see balanced_shard()).
//
//   matmul_all_reduce      X [m, k_r]    W [k_r, n]   out [m, n]: the sum over ranks
//   matmul_reduce_scatter  X [m, k_r]    W [k_r, n]   out: this rank's rows of the sum
//   matmul_all_gather      X own rows    W [k, n]     out [m, n]: the rows of all ranks
//   all_gather_matmul      X own rows    W [k, n_r]   out [m, n_r]; also X [m, k] where asked for
//   reduce_scatter_matmul  X [m, k]      W [k, n]     out: this rank's rows of (sum of X)·W
//   all_reduce_matmul      X [m, k]      W [k, n]     out [m, n]: (sum of X)·W
//
// Partial products are summed over k in f32, rounded to the wire, added over ranks in f32 as a tree
// (0 + 1, 2 + 3, ..., level by level), a bias is added, and the result is rounded once. So every
// plan, every transport, every number of threads and every run gives the same bits, on every rank,
// in whatever mode of rounding and of denormals its threads are. If ranks have equal shares of k
// that are nodes of the tree of all k, and the wire is f32, they are also the bits of one rank that
// has all k: Op::sum_tree() says so.
//
// Every rank of the communicator makes the call, with the same m, dtypes, wire and plan. Operands
// that are refused (Error{invalid_argument}) have had nothing written; a call that fails in what
// ranks do together (peer_lost, mismatch, timeout, ...) leaves `out` and `gathered` undefined.
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

// What a call looks after while it multiplies and waits: another communicator's collective, or
// whether the user wants it to end. Called now and then by the thread that made the call; what it
// throws fails the call. It calls no operator of the same communicator. It runs with default floats
// (to nearest, with denormals), whatever the caller has set, and what it sets is undone.
using PollHook = std::function<void()>;

struct OpOptions {
  // How the operator works. The same on all ranks, but for threads and backend.

  // f32, bf16 or f16: in what partial products travel. Narrower is less to send, and rounds each
  // once more. Sums that come first travel as X is.
  Dtype wire = Dtype::f32;
  std::optional<Plan> plan = {};  // empty: what `plans` knows, else the default

  // All ranks give one, or none does. Where each has a share of n or k, they add up their shares to
  // ask for the whole: prepare() once, a blocking call every time. A blocking call asks for the
  // plan of its rows; prepare() of desc.m rows, of half of them, and so on.
  const PlanSource* plans = nullptr;

  // matmul: k is one of so many equal shares of a sum that the caller adds (GemmDesc::shares).
  std::int64_t shares = 1;

  int threads = 0;           // 0: as many as OpenMP would use
  std::string backend = {};  // of the product; empty: the best

  // What one call adds to its operands. prepare() refuses these: Op::run() takes them.

  // [1, n], of all ranks or of none, the same where they have the same n. Where each has a share of
  // it, in all_gather_matmul, it is the rank's own.
  ConstTensorView bias = {};
  TensorView gathered = {};  // all_gather_matmul: takes X [m, k]
  Stream stream = {};        // where operands are a device's memory
  PollHook poll = {};
};

// Blocking. The first call of a kind prepares it for all that follow, in whatever plan and of
// however many rows: the numbers of tokens may change from call to call. Only a call that needs
// larger slots than all before it makes a mailbox, which takes the ranks some negotiating. The
// communicator keeps what was prepared: of 64 kinds, and at most 1 GiB (but always the last one).
// What was not used for longest goes first. Mailboxes stay, two at most for each power of two of a
// slot's bytes, of sums that come back and of all else: Communicator::mailbox_bytes().
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

// What is known of an operator before its operands are.
struct OpDesc {
  Operator op;
  std::int64_t m;  // rows of all ranks together: of a call, at most
  std::int64_t n;  // of this rank's weight
  std::int64_t k;
  Dtype x = Dtype::bf16;
  WeightKind weight = {};  // plait::Weight(w).kind()
  Dtype out = Dtype::bf16;
  bool gathered = false;  // all_gather_matmul: X is asked for too

  bool operator==(const OpDesc&) const = default;
};

// One run. What is optional is as in OpOptions.
struct OpCall {
  ConstTensorView x;
  Weight weight;
  TensorView out;
  ConstTensorView bias = {};
  TensorView gathered = {};
  Stream stream = {};
  PollHook poll = {};
};

// An operator ready to run many times: with its memory, its mailbox and its plans, so that a call
// negotiates nothing. Must not outlive its communicator. Each run brings its weight, which may be
// another one of the sizes and kind in the description, and any number of rows up to desc().m, the
// same on all ranks. The bits of a result don't depend on what was prepared for.
class PLAIT_EXPORT Op {
 public:
  class State;
  explicit Op(std::unique_ptr<State> state);
  Op(Op&&) noexcept;
  Op& operator=(Op&&) noexcept;
  ~Op();

  const OpDesc& desc() const;
  const Plan& plan() const;  // of desc().m rows, and of fewer where no source was asked

  // Whether its sums have the bits of one rank that has all k. Collective: ranks with shares of k
  // compare them.
  SumTree sum_tree() const;

  // Bytes that it keeps from call to call, without the mailbox, which others may share. What its
  // product works in comes with the first run of as many rows.
  std::size_t held_bytes() const;

  // Collective.
  void run(const OpCall& call);

 private:
  State& state() const;

  std::unique_ptr<State> state_;
};

// Whether the sums of an operator have the bits of one rank that has all k, if each of `world`
// ranks has a share of k like this rank's. Not collective.
PLAIT_EXPORT SumTree sum_tree(const OpDesc& desc, int world, Dtype wire = Dtype::f32);

// Collective.
PLAIT_EXPORT Op prepare(const OpDesc& desc, Communicator& comm, const OpOptions& options = {});

}  // namespace plait
