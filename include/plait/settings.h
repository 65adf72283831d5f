// Settings for a whole program without changing it: from a file, from the environment, or as
// values.
//
//   const plait::Settings settings = plait::load_settings();
//   const plait::SettingsPlans plans(settings);
//   plait::matmul_all_reduce(x, w, y, comm, {.wire = settings.wire, .plans = &plans});
//
// The file is TOML, and PLAIT_CONFIG names it; PLAIT_PLAN, PLAIT_WIRE and so on take precedence
// over it. MindSpeed CoC's names are understood too. Misspelt names in the file, unreadable values
// and contradictions are refused: Error{invalid_argument} names the file and the line, or the
// variable. (Variables with misspelt names are not read: check_environment() lists them.) All ranks
// of a communicator must have the same settings.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plait/dtype.h"
#include "plait/export.h"
#include "plait/plan.h"

namespace plait {

// The product that a rank computes: m rows by its k x n share of the weight. Operators that gather
// X, sum it first or gather the result count the rows of all ranks. Forward and backward of a layer
// have different shapes.
struct ProductShape {
  std::int64_t m, k, n;

  auto operator<=>(const ProductShape&) const = default;
};

struct Settings {
  std::optional<Plan> plan = {};                 // of all operators; empty: automatic
  std::map<ProductShape, Plan> customized = {};  // of some shapes, instead of `plan`

  // For layers (see LinearOptions).
  bool column_backward = false;      // a column layer's grad_x by one operator
  bool recompute_all_gather = true;  // backward gathers X again
  bool aligned_packing = true;       // gathered rows take whole cache lines

  // Partial sums travel in f32, bf16, f16 or s8. kNoDtype: automatic (kAutomaticWire of ops.h).
  Dtype wire = kNoDtype;
  int threads = 0;           // of a product; 0: as many as OpenMP would use
  std::string backend = {};  // of products; empty: the best

  std::string plan_cache = {};  // the file in which measured plans are kept; empty: none

  // Measure plans during the first calls of a shape. Empty: if the ranks are on several hosts.
  std::optional<bool> tune_online = {};

  bool operator==(const Settings&) const = default;
};

// Reads the file that PLAIT_CONFIG names, if any, and the environment, which takes precedence. If
// neither sets plan_cache, it is plait/plans in $XDG_CACHE_HOME, or else in ~/.cache.
PLAIT_EXPORT Settings load_settings();

// Reads this text in place of the file that PLAIT_CONFIG names, and the environment.
PLAIT_EXPORT Settings load_settings(std::string_view toml, std::string_view file = "settings");

// The settings of a file with this text, without the environment. Refusals call it `file`.
PLAIT_EXPORT Settings parse_settings(std::string_view toml, std::string_view file = "settings");

// Reads every variable that plait reads, also those of communicators and kernels, and refuses a bad
// value before ranks connect. Returns a sentence for each variable PLAIT_..., COC_... and
// USE_COC_... that plait does not read: "PLAIT_TIMEOT: plait does not read it; did you mean
// PLAIT_TIMEOUT?"
PLAIT_EXPORT std::vector<std::string> check_environment();

// The row of `customized` that applies to a problem: rank 0's share of it.
PLAIT_EXPORT ProductShape shape_of(const PlanKey& key);

// Plans in order of precedence: the plan that is set for the shape, the one that is set for all
// shapes, and then those of further sources, in their order.
class PLAIT_EXPORT SettingsPlans final : public PlanSource {
 public:
  // The sources are used later, so they must outlive this object.
  explicit SettingsPlans(const Settings& settings, std::vector<const PlanSource*> further = {});
  ~SettingsPlans() override;

  std::optional<Plan> find(const PlanKey& key) const override;

  // If no plan is set, a further source may be measuring.
  std::optional<Plan> next(const PlanKey& key) const override;
  void took(const PlanKey& key, const Plan& plan, std::int64_t nanoseconds) const override;
  std::optional<PlanReason> reason(const PlanKey& key) const override;

 private:
  std::optional<Plan> set_for(const PlanKey& key) const;

  std::optional<Plan> plan_;
  std::map<ProductShape, Plan> customized_;
  std::vector<const PlanSource*> further_;
};

}  // namespace plait
