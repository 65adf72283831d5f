// How an operator's product and its communication interleave. It changes the time, never a bit.
//
//   plait::Plan plan = plait::parse_plan("pipelined parts=8 axis=columns");
//   plait::matmul_all_reduce(x, w, y, comm, {.plan = plan});
//
// serial     the whole product, then the whole collective (or the other way round)
// pipelined  the product in parts: a part's collective runs beside the next part's product
// fused      chunk by chunk: tiles are written where their owner reads them
//
// All ranks of a call hold the same plan; where they don't, the call raises Error{mismatch}.
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

// Along what a product is cut. `natural`: its columns where it comes first, because they cost
// nothing to cut; its rows where it comes last, because they are what arrives.
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
  // many as suit the product. Compute first, those at both ends are smaller if there are enough.
  std::int64_t chunk = 0;

  // How long a product goes on, in microseconds, before it is asked to look after the
  // communication that runs beside it.
  std::int64_t poll = 200;

  bool operator==(const Plan&) const = default;
};

// "serial", "pipelined parts=8", "fused chunk=256 poll=100": what differs from the defaults, and
// means something in the plan's schedule.
PLAIT_EXPORT std::string name(const Plan& plan);

// The inverse of name(), in any order. Error{invalid_argument} says which word can't be read, or
// means nothing in the plan's schedule.
PLAIT_EXPORT Plan parse_plan(std::string_view text);

// Refuses a plan that no operator could follow, in one sentence that begins with `who`.
PLAIT_EXPORT void check(const Plan& plan, std::string_view who);

// A hash of the plan: equal plans have equal ones, on every machine.
PLAIT_EXPORT std::uint32_t fingerprint(const Plan& plan);

// Whether the operator exists in the schedule.
constexpr bool has_schedule(Operator op, Schedule schedule) {
  if (schedule == Schedule::serial) return true;
  if (schedule == Schedule::pipelined) return traits_of(op).communicates();
  return traits_of(op).is_fused;
}

// The plan itself where the operator can follow it. Else the nearest that it can: serial where it
// has no such schedule, and along the natural axis where it can't be cut along the other.
PLAIT_EXPORT Plan followed_by(Operator op, Plan plan);

// What a plan may depend on: all that the ranks of a call have in common.
struct PlanKey {
  Operator op;
  std::int64_t m, n, k;  // of the whole problem: what is cut into shares, all ranks together
  Dtype x = Dtype::bf16;
  // Packed before: or "s8:group=128". A WeightView, which every call packs anew: "bf16:plain".
  std::string weight = "bf16";
  Dtype out = Dtype::bf16;
  Dtype wire = Dtype::f32;  // where no partial sums travel, X's
  int world = 1;
  int hosts = 1;             // that the ranks are on
  int threads = 0;           // of each rank, as they were asked for; 0: as many as it has
  std::string backend = {};  // of the product, as it was asked for; empty: the best
  std::string transport = {};
  std::optional<Link> link = {};  // an emulated one

  bool operator==(const PlanKey&) const = default;
};

// "op=matmul_all_reduce m=2048 n=8192 k=8192 x=bf16 w=bf16 out=bf16 wire=f32 ranks=2 transport=shm
// link=25gbit,5us": all but what is 0 or empty, and hosts where there are several.
PLAIT_EXPORT std::string name(const PlanKey& key);

// The inverse of name(), in any order. x is bf16 where it isn't named, w and out are as x is, as
// w=plain is, wire is f32, and ranks is 2. Error{invalid_argument} says which word can't be read.
PLAIT_EXPORT PlanKey parse_plan_key(std::string_view text);

// Who knows a plan for a problem. To the same key it gives the same plan on every rank.
class PLAIT_EXPORT PlanSource {
 public:
  virtual ~PlanSource();
  // nullopt: this source knows none.
  virtual std::optional<Plan> find(const PlanKey& key) const = 0;

  // Asked in place of find() by a blocking call, which tells took() what plan it has followed
  // (followed_by() the operator, of what was said here) and how long that has taken. A source that
  // measures gives one call another plan than the next, but all ranks the same. Asking again
  // changes nothing: took() ends a call. What is found out may be compared between ranks there,
  // where all of them are.
  virtual std::optional<Plan> next(const PlanKey& key) const { return find(key); }
  virtual void took(const PlanKey& key, const Plan& plan, std::int64_t nanoseconds) const;
};

// The plan that is used if the caller names none: fused where the operator has it, else serial.
PLAIT_EXPORT Plan default_plan(Operator op);

}  // namespace plait
