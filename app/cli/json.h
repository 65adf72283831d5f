// JSON as the command prints it: in the order in which it was made.
#pragma once

#include <nlohmann/json.hpp>

namespace plait::cli {

using Json = nlohmann::ordered_json;

}  // namespace plait::cli
