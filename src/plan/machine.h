// Identifies this machine, as far as times depend on it.
#pragma once

#include <string>

namespace plait::plan {

// One line with the processor's name and numbers, their count, their features, and the version of
// plait. Times measured under another fingerprint don't apply here.
std::string machine_fingerprint();

}  // namespace plait::plan
