// Shows what plait info has found. Each of its answers is one record: --json prints it, and text is
// made from it.
#pragma once

#include <string>
#include <string_view>

#include "cli/json.h"

namespace plait::cli {

inline Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }
inline std::string or_empty(const Json& text) {
  return text.is_null() ? std::string() : text.get<std::string>();
}

// A record of find_out(), in lines of at most 100 columns.
std::string show_findings(const Json& findings);

// "rank 1 of 4 on 1 host, by the variables of plait run"
std::string show_place(const Json& place);

// One or more lines: the label, then the text, wrapped to 100 columns and aligned after the label.
std::string labelled(std::string_view label, std::string_view text, std::size_t indent = 12);

// A line of a table, after the table's name on its first line.
std::string labelled_row(std::string_view table, const std::string& name, bool can,
                         std::string_view text);

}  // namespace plait::cli
