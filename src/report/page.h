// A timeline as one HTML page that needs nothing else: no network, no other file.
#pragma once

#include <string>

#include "report/timeline.h"

namespace plait::report {

std::string page(const Timeline& timeline);

}  // namespace plait::report
