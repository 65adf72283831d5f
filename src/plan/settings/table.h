// The settings, one by one: their names, how they are read, and how they are written.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "plait/settings.h"
#include "plan/settings/raw_setting.h"

namespace plait::plan {

struct Setting {
  std::string_view name;      // in a file
  std::string_view variable;  // in the environment
  std::string_view coc_name;  // the name in MindSpeed CoC; empty: none
  void (*read)(const RawSetting&, Settings&);
  std::string (*show)(const Settings&);  // as a variable's value
};

// In the order in which they are shown.
std::span<const Setting> all_settings();

// Finds a setting by any of its names in a file; null if there is none.
const Setting* find_setting(std::string_view name);

// "fused", "pipelined parts=4"; or CoC's numbers: 4 parts, 1 serial, -1 fused.
Plan read_plan(const RawSetting& raw);

}  // namespace plait::plan
