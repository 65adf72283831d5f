#include "comm/engines/ucx/plugin/threshold.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/text.h"
#include "comm/engines/ucx/plugin/printed.h"

namespace plait::comm::ucx {
namespace {

constexpr const char* kVariable = "UCX_RNDV_THRESH";

// Newer versions print "intra:auto,inter:auto" for "auto".
bool is_auto(std::string_view value) {
  const auto words = base::split(value, ',');
  return std::all_of(words.begin(), words.end(), [](std::string_view word) {
    return word == "auto" || word.ends_with(":auto");
  });
}

}  // namespace

bool is_threshold_set(const ucp_config_t* config) {
  if (std::getenv(kVariable) != nullptr) return true;
  const std::string text = printed(
      [&](std::FILE* stream) { ucp_config_print(config, stream, "", UCS_CONFIG_PRINT_CONFIG); });
  for (const std::string_view line : base::split(text, '\n')) {
    const auto words = base::split(line, '=');
    if (words.size() == 2 && words[0] == kVariable) return !is_auto(words[1]);
  }
  return false;
}

}  // namespace plait::comm::ucx
