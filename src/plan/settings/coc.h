// The settings of MindSpeed CoC that plait understands, by CoC's names.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plait/plan.h"
#include "plan/settings/raw_setting.h"

namespace plait::plan {

// CoC's four switches as they are set in one place, a file or the environment. A plan follows from
// all of them together.
class CocSwitches {
 public:
  struct Choice {
    std::optional<Plan> plan;  // empty: automatic plans
    RawSetting said;           // the switch that decides
    // also overrides the plans of single shapes, because CoC is off or divides nothing
    bool of_all = false;
  };

  // False: CoC has no switch of that name. `name` is the name used in files, whatever the value is
  // called.
  bool take(std::string_view name, const RawSetting& raw);

  // The choice of the strongest switch; empty if none of them chooses.
  std::optional<Choice> choice() const;

 private:
  enum class Strength : std::uint8_t { off, fused, in_one_piece, parts, on };  // strongest first
  std::map<Strength, Choice> said_;
};

struct CocVariable {
  const char* variable;
  std::string_view name;  // of the switch, in a file
};
inline constexpr std::array<CocVariable, 2> kCocVariables = {{
    {"COC_PARALLEL_NUM", "coc_parallel_num"},
    {"USE_COC_FUSED_KERNEL", "coc_fused_kernel"},
}};

// Refuses a setting that enables a feature which replaces plait's layers. False: `name` is no such
// setting.
bool take_rival(std::string_view name, const RawSetting& raw);

// Why this setting has no effect on plait; empty: it is not a known one.
std::string_view why_meaningless(std::string_view name);

// All names above, as files use them.
std::vector<std::string> coc_names();

}  // namespace plait::plan
