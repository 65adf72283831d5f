#pragma once

#include <string>
#include <string_view>

namespace plait::trace {

// Appends text as a JSON string, with quotes. Each byte that is not UTF-8 becomes U+FFFD, because a
// bad name must not make a whole timeline unreadable.
void append_json_string(std::string& out, std::string_view text);

}  // namespace plait::trace
