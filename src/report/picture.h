// A timeline as a picture (SVG): run below run on one time axis, a row per rank and kind.
#pragma once

#include <string>

#include "report/timeline.h"

namespace plait::report {

// Colours are CSS variables with defaults for a light page; who embeds the picture may set others.
std::string picture(const Timeline& timeline);

// For text inside of XML or HTML.
std::string escaped(std::string_view text);

}  // namespace plait::report
