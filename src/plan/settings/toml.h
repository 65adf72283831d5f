// The part of TOML that settings are written in: tables, bare and quoted and dotted keys, text in
// one line, whole numbers, true and false, tables in braces, and comments.
//
//   coc_parallel_num = 4
//   [customized]
//   "[16384, 5120, 1920]" = "fused"
#pragma once

#include <string>
#include <string_view>

#include "plan/settings/given.h"

namespace plait::plan {

// In the order of the file. Refuses what it can't read in a sentence with the file and the line.
Given::Entries read_toml(std::string_view text, const std::string& file);

}  // namespace plait::plan
