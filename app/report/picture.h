// Renders a timeline as a picture (SVG): runs below one another on one time axis, with a row per
// rank and kind.
#pragma once

#include <string>

#include "report/timeline.h"

namespace plait::report {

// For a page that has a heading of its own. Includes styles for light and dark.
std::string picture(const Timeline& timeline);

// A stand-alone file for documents: with a heading, narrower, and without descriptions of bars.
std::string picture_file(const Timeline& timeline);

// Escapes text for XML or HTML.
std::string escaped(std::string_view text);

}  // namespace plait::report
