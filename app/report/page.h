// Renders a timeline as one HTML page that needs no other file and no network.
#pragma once

#include <string>

#include "report/timeline.h"

namespace plait::report {

std::string page(const Timeline& timeline);

}  // namespace plait::report
