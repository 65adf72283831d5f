// Completion in fish.
#include <fmt/format.h>

#include "cli/pages/completion.h"

namespace plait::cli {
namespace {

// In fish a backslash escapes the quotation mark within single quotes.
std::string fish_quoted(std::string_view text) {
  std::string result = "'";
  for (const char letter : text) {
    if (letter == '\'' || letter == '\\') result += '\\';
    result += letter;
  }
  return result + "'";
}

std::string condition(const std::vector<std::string>& names) {
  return fish_quoted("__plait_at \"" + joined(names, "\" \"") + '"');
}

std::string show_words(const std::string& name, const std::vector<HelpPage::Entry>& entries) {
  std::string text;
  for (const auto& [word, summary] : entries) {
    text += fmt::format("complete -c plait -n {} -a {}", condition({name}), word);
    text += summary.empty() ? "\n" : " -d " + fish_quoted(summary) + "\n";
  }
  return text;
}

std::string show_option(const std::string& where, const HelpPage::Option& option) {
  std::string text = "complete -c plait -n " + where;
  for (const std::string& name : option.names)
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (takes_file(option)) {
    text += " -r -F";
  } else if (!option.value.empty()) {
    text += " -x";
    if (const auto words = words_of(option); !words.empty())
      text += " -a " + fish_quoted(joined(words, " "));
  }
  return text + " -d " + fish_quoted(short_purpose(option)) + "\n";
}

constexpr const char* kHead =
    R"(# Completion of plait in fish, by `plait completion fish`. Made from --help.

# The verb, and the word after it on which its options depend.
function __plait_page
    set -l words (commandline -opc)
    set -e words[1]
    if test (count $words) -gt 1; and contains -- $words[1] $__plait_with_subpages
        echo "$words[1] $words[2]"
    else
        echo "$words[1]"
    end
end

function __plait_at
    contains -- (__plait_page) $argv
end

complete -c plait -f
complete -c plait -n '__plait_at ""' -s h -l help -d 'print the verbs'
complete -c plait -n '__plait_at ""' -l version -d 'print the version'
complete -c plait -n '__plait_at run' -F -a '(__fish_complete_command)'
)";

}  // namespace

std::string write_fish_completion(const Pages& pages) {
  std::string text = kHead;
  std::vector<std::string> with_subpages;
  for (const HelpPage& page : pages) {
    if (page.name.empty() || page.subpages.empty()) continue;
    with_subpages.push_back(page.name);
    text += show_words(page.name, page.subpages);
  }
  text += "set -g __plait_with_subpages " + joined(with_subpages, " ") + "\n";
  text += show_words("", first_words(pages));
  text += fmt::format("complete -c plait -n '__plait_at completion' -a '{}'\n", kShells);
  for (const char* word : {"help", "man"}) text += show_words(word, pages[0].lists[0].entries);
  for (const AlikePages& group : group_pages(pages)) {
    const std::string where = condition(group.names);
    for (const HelpPage::Option& option : group.page->options) text += show_option(where, option);
    if (!group.page->words.empty())
      text += fmt::format("complete -c plait -n {} -a {}\n", where,
                          fish_quoted(joined(group.page->words, " ")));
  }
  return text;
}

}  // namespace plait::cli
