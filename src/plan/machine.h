// Which machine this is, as far as times depend on it.
#pragma once

#include <string>

namespace plait {

// One line: the processor by name and numbers, how many of them, what they can do, and which plait.
// What was measured where it was another means nothing here.
std::string machine_fingerprint();

}  // namespace plait
