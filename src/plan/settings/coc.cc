#include "plan/settings/coc.h"

#include <algorithm>

namespace plait::plan {
namespace {

constexpr Plan kSerial = {.schedule = Schedule::serial};
constexpr Plan kFused = {.schedule = Schedule::fused};

constexpr std::array<std::string_view, 4> kSwitches = {"use_ascend_coc", "coc_parallel_num",
                                                       "coc_fused_kernel", "coc_mode"};

struct Remark {
  std::string_view name;
  std::string_view reason;
};

constexpr std::array<Remark, 4> kRivals = {{
    {"use_ascend_mc2", "MC2 fuses the same products and collectives as plait"},
    {"optimize_recomp_communication_level",
     "it leaves out collectives that plait hides behind their products"},
    {"tp_2d", "it shards layers along two dimensions, and plait shards them along one"},
    {"unaligned_linear",
     "it replaces the layers that plait replaces, and plait's need no alignment"},
}};

constexpr std::array<Remark, 3> kMeaningless = {{
    {"k_min", "plait pads packed weights for every k"},
    {"k_max", "plait pads packed weights for every k"},
    {"print_tensor_value_open", "use plait verify to compare bits, and plait trace to see calls"},
}};

template <class Remarks>
std::string_view reason_of(const Remarks& remarks, std::string_view name) {
  for (const Remark& remark : remarks) {
    if (remark.name == name) return remark.reason;
  }
  return {};
}

}  // namespace

bool CocSwitches::take(std::string_view name, const RawSetting& raw) {
  const auto say = [&](Strength strength, std::optional<Plan> plan) {
    const bool of_all = strength == Strength::off || strength == Strength::in_one_piece;
    said_.emplace(strength, Choice{.plan = plan, .said = raw, .of_all = of_all});
  };
  if (name == "use_ascend_coc") {
    if (raw.flag())
      say(Strength::on, std::nullopt);
    else
      say(Strength::off, kSerial);
  } else if (name == "coc_fused_kernel") {
    if (raw.flag()) say(Strength::fused, kFused);
  } else if (name == "coc_mode") {
    // Modes 0 and 1 divide nothing. Modes 2 and -1 leave it to the other switches.
    if (raw.whole(-1, 2) >= 0 && raw.whole(-1, 2) < 2) say(Strength::in_one_piece, kSerial);
  } else if (name == "coc_parallel_num") {
    const int parts = static_cast<int>(raw.whole(1, kMostParts));
    say(Strength::parts,
        parts == 1 ? kSerial : Plan{.schedule = Schedule::pipelined, .parts = parts});
  } else {
    return false;
  }
  return true;
}

std::optional<CocSwitches::Choice> CocSwitches::choice() const {
  if (said_.empty()) return std::nullopt;
  return said_.begin()->second;
}

bool take_rival(std::string_view name, const RawSetting& raw) {
  const std::string_view reason = reason_of(kRivals, name);
  if (reason.empty()) return false;
  // It is either a flag, or a level where 0 means off.
  const bool is_on = raw.is_whole() ? raw.whole(INT64_MIN, INT64_MAX) != 0 : raw.flag();
  if (is_on) raw.refuse(" cannot be combined with plait: ", reason);
  return true;
}

std::string_view why_meaningless(std::string_view name) { return reason_of(kMeaningless, name); }

std::vector<std::string> coc_names() {
  std::vector<std::string> names(kSwitches.begin(), kSwitches.end());
  for (const Remark& rival : kRivals) names.emplace_back(rival.name);
  for (const Remark& remark : kMeaningless) names.emplace_back(remark.name);
  return names;
}

}  // namespace plait::plan
