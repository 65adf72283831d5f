// Parses the part of TOML that settings use: tables; bare, quoted and dotted keys; text on one
// line, whole numbers, true and false; tables in braces; comments.
//
//   coc_parallel_num = 4
//   [customized]
//   "[16384, 5120, 1920]" = "fused"
#pragma once

#include <string>
#include <string_view>

#include "plan/settings/raw_setting.h"

namespace plait::plan {

// Entries are in the order of the file. A text that can't be read is refused in a sentence with the
// file and the line.
RawSetting::Entries read_toml(std::string_view text, const std::string& file);

}  // namespace plait::plan
