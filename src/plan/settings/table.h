// The settings one by one: what each is called, how it is read, and how it is written.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "plait/settings.h"
#include "plan/settings/given.h"

namespace plait::plan {

struct Setting {
  std::string_view name;      // in a file
  std::string_view variable;  // in the environment
  std::string_view coc_name;  // that MindSpeed CoC gives it; empty: none
  void (*read)(const Given&, Settings&);
  std::string (*show)(const Settings&);  // as a variable would say it
};

// In the order in which they are shown.
std::span<const Setting> all_settings();

// By any of its names in a file; null: there is none.
const Setting* find_setting(std::string_view name);

// "fused", "pipelined parts=4"; or as CoC counts: 4 parts, 1 serial, -1 fused.
Plan read_plan(const Given& given);

}  // namespace plait::plan
