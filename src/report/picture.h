// A timeline as a picture (SVG): run below run on one time axis, a row per rank and kind.
#pragma once

#include <string>

#include "report/timeline.h"

namespace plait::report {

// Part of a page that has a heading of its own. Brings its colours, for light and for dark.
std::string picture(const Timeline& timeline);

// The same as a file of its own, for documents: with a heading, narrower, and without the details
// of each bar.
std::string picture_file(const Timeline& timeline);

// For text inside of XML or HTML.
std::string escaped(std::string_view text);

}  // namespace plait::report
