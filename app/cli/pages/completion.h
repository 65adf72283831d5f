// Helpers of the scripts for all shells.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/pages/pages.h"

namespace plait::cli {

// Pages with the same options: "bench matmul-all-reduce" and the other operators.
struct AlikePages {
  std::vector<std::string> names;
  const HelpPage* page;
};
std::vector<AlikePages> group_pages(const Pages& pages);

// The words in the place of the verb, those that are no verbs included.
std::vector<HelpPage::Entry> first_words(const Pages& pages);

// One line without the default and other notes in parentheses at its end.
std::string short_purpose(const HelpPage::Option& option);

inline constexpr std::string_view kShells = "bash fish zsh";

// A word as a shell reads it: 'it'\''s'.
std::string shell_word(std::string_view text);

// Each text as a word.
std::vector<std::string> shell_words(const std::vector<std::string>& texts);

std::string joined(const std::vector<std::string>& words, std::string_view between);

}  // namespace plait::cli
