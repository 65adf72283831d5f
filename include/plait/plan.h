// How an operator's product and its communication interleave. It changes the time, never a bit.
//
//   plait::Plan plan = plait::parse_plan("pipelined parts=8 axis=columns");
//   plait::matmul_all_reduce(x, w, y, comm, {.plan = plan});
//
// serial     the whole product, then the whole collective (or the other way round)
// pipelined  the product in parts: a part's collective runs beside the next part's product
// fused      chunk by chunk: tiles are written where their owner reads them
//
// All ranks of a call must use the same plan; otherwise the call throws Error{mismatch}.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "plait/dtype.h"
#include "plait/export.h"
#include "plait/link.h"
#include "plait/operator.h"

namespace plait {

enum class Schedule : std::uint8_t { serial, pipelined, fused };

PLAIT_EXPORT std::string_view name(Schedule schedule);

// The axis along which a product is cut. `natural` is columns if the product comes first, because
// cutting columns costs nothing, and rows if it comes last, because rows arrive one after another.
enum class Axis : std::uint8_t { natural, rows, columns };

PLAIT_EXPORT std::string_view name(Axis axis);

inline constexpr int kMostParts = 64;

struct Plan {
  Schedule schedule = Schedule::fused;

  // For pipelined: how many parts (1 to kMostParts), along which axis, and how large the first and
  // the last are, in percent of the others: short ones leave less time exposed at both ends.
  int parts = 4;
  Axis axis = Axis::natural;
  int first = 50;
  int last = 50;

  // For fused: how many columns (compute first) or rows of a shard (comm first) make a chunk; 0: as
  // many as suit the product. With compute first, the chunks at both ends are smaller if there are
  // enough.
  std::int64_t chunk = 0;

  // The time in microseconds after which a running product polls the communication beside it.
  std::int64_t poll = 200;

  bool operator==(const Plan&) const = default;
};

// "serial", "pipelined parts=8", "fused chunk=256 poll=100": the values that differ from the
// defaults and belong to the plan's schedule.
PLAIT_EXPORT std::string name(const Plan& plan);

// The inverse of name(), in any order. Error{invalid_argument} says which word can't be read, or
// does not belong to the plan's schedule.
PLAIT_EXPORT Plan parse_plan(std::string_view text);

// Refuses a plan that no operator could follow, in one sentence that begins with `caller`.
PLAIT_EXPORT void check(const Plan& plan, std::string_view caller);

// A hash of the plan: equal plans have equal hashes, on every machine.
PLAIT_EXPORT std::uint32_t fingerprint(const Plan& plan);

// True if the operator exists in the schedule.
constexpr bool has_schedule(Operator op, Schedule schedule) {
  if (schedule == Schedule::serial) return true;
  if (schedule == Schedule::pipelined) return traits_of(op).communicates();
  return traits_of(op).is_fused;
}

// The plan itself if the operator can follow it, else the nearest plan that it can: serial if it
// has no such schedule, and the natural axis if it can't be cut along the other.
PLAIT_EXPORT Plan followed_by(Operator op, Plan plan);

// The family of a call that plans are for. Operators are described by m, n and k; the calls of
// plait/ulysses.h, plait/columns.h and plait/experts.h have one number more.
enum class Family : std::uint8_t { operators, ulysses, columns, experts };

// The problem that a plan is for: everything that the ranks of a call have in common.
struct PlanKey {
  Operator op;
  std::int64_t m, n, k;  // of the whole problem: the ranks' shares together
  Dtype x = Dtype::bf16;
  // "bf16" or "s8:group=128" for a packed weight, "bf16:plain" for a WeightView, which every call
  // packs again.
  std::string weight = "bf16";
  Dtype out = Dtype::bf16;
  Dtype wire = Dtype::f32;  // X's dtype if no partial sums travel
  int world = 1;
  int hosts = 1;             // that the ranks are on
  int threads = 0;           // of each rank, as requested; 0: as many as it has
  std::string backend = {};  // of the product, as requested; empty: the best
  std::string transport = {};
  // An emulated link; or, if the ranks are on several hosts, about the one that they have measured.
  std::optional<Link> link = {};

  // In other families than operators, `op` is an operator with the same schedules, which is
  // matmul_reduce_scatter if the product comes first, as in replicated batches of experts, else
  // all_gather_matmul. `wire` is x, and `columns` the most columns that a rank has. A layer of
  // experts has one plan for all batches: m is `top`, n `inner`, k `hidden`, and columns
  // the experts, or their parts.
  Family family = Family::operators;
  std::int64_t columns = 0;

  bool operator==(const PlanKey&) const = default;
};

// "op=matmul_all_reduce m=2048 n=8192 k=8192 x=bf16 w=bf16 out=bf16 wire=f32 ranks=2 transport=shm
// link=25gbit,5us": all but values that are 0 or empty, and hosts if there are several.
PLAIT_EXPORT std::string name(const PlanKey& key);

// The inverse of name(), in any order. The defaults are bf16 for x, x's dtype for w, w=plain and
// out, f32 for wire, and 2 for ranks. Error{invalid_argument} says which word can't be read.
PLAIT_EXPORT PlanKey parse_plan_key(std::string_view text);

// The reason for the plan of a problem, for reports.
struct PlanReason {
  std::string sentence = {};  // "measured: no plan is clearly faster than serial"
  double serial_ns = 0;       // the time of a serial call, measured or predicted; 0: unknown
  double transfer_ns = 0;     // how long the link is busy, as predicted
  bool is_measured = false;   // the plan was decided upon by measuring
};

// A source of plans for problems. For the same key it returns the same plan on every rank.
class PLAIT_EXPORT PlanSource {
 public:
  virtual ~PlanSource();
  // nullopt: this source knows none.
  virtual std::optional<Plan> find(const PlanKey& key) const = 0;

  // Called instead of find() by a blocking call. Afterwards the call passes to took() the plan that
  // it has used (followed_by() the operator, of the plan returned here) and its duration. A source
  // that measures may return different plans to successive calls, but the same to all ranks.
  // Calling it again changes nothing until took() ends the call. In took() ranks may compare their
  // results, since all of them are in the same call.
  virtual std::optional<Plan> next(const PlanKey& key) const { return find(key); }
  virtual void took(const PlanKey& key, const Plan& plan, std::int64_t nanoseconds) const;

  // Why the plan is what find() says. nullopt: the source knows nothing of the problem. Not
  // collective.
  virtual std::optional<PlanReason> reason(const PlanKey& key) const;
};

// The plan that is used if the caller names none: fused if the operator has it, else serial.
PLAIT_EXPORT Plan default_plan(Operator op);

}  // namespace plait
