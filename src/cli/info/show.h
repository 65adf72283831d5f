// Shows what plait info has found, as text and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "cli/info/findings.h"

namespace plait::cli {

// Lines of at most 100 columns.
std::string show_text(const Findings& findings);

// Later versions may add keys; existing keys keep their meaning.
nlohmann::ordered_json show_json(const Findings& findings);

// "rank 1 of 4 on 1 host, by the variables of plait run"
std::string show_place(const Place& place);

// One or more lines: the label, then the text, wrapped to 100 columns and aligned after the label.
std::string labelled(std::string_view label, std::string_view text, std::size_t indent = 12);

}  // namespace plait::cli
