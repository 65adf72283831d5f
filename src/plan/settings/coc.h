// What MindSpeed CoC has other things for than plait, and what it calls them.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plait/plan.h"
#include "plan/settings/given.h"

namespace plait::plan {

// Its four switches, as one place says them: a file, or the environment. No plan can be read from
// one of them alone.
class CocSwitches {
 public:
  struct Choice {
    std::optional<Plan> plan;  // empty: automatic
    Given said;                // by which of them
    bool of_all = false;       // whatever single shapes would have: there is no CoC, or none cuts
  };

  // False: it has no switch of that name. `name` is a file's, whatever the value is called.
  bool take(std::string_view name, const Given& given);

  // What the strongest of them says; empty: they leave it to others.
  std::optional<Choice> choice() const;

 private:
  enum class Strength : std::uint8_t { off, fused, in_one_piece, parts, on };  // strongest first
  std::map<Strength, Choice> said_;
};

struct CocVariable {
  const char* variable;
  std::string_view name;  // of the switch
};
inline constexpr std::array<CocVariable, 2> kCocVariables = {{
    {"COC_PARALLEL_NUM", "coc_parallel_num"},
    {"USE_COC_FUSED_KERNEL", "coc_fused_kernel"},
}};

// Refuses a feature that takes the place of plait's layers, where it is on. False: `name` is none.
bool take_rival(std::string_view name, const Given& given);

// Why what it sets means nothing here; empty: it sets no such thing.
std::string_view why_meaningless(std::string_view name);

// All names above that a file may use.
std::vector<std::string> coc_names();

}  // namespace plait::plan
