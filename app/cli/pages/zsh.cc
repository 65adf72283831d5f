// Completion in zsh, by its function _arguments.
#include <fmt/format.h>

#include "cli/pages/completion.h"

namespace plait::cli {
namespace {

// Text inside of brackets and between colons, in single quotes.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char letter : text) {
    if (letter == '[' || letter == ']' || letter == ':' || letter == '\\') result += '\\';
    result += letter;
  }
  return result;
}

std::string action_of(const HelpPage::Option& option) {
  if (takes_file(option)) return "_files";
  const std::vector<std::string> words = words_of(option);
  if (words.empty()) return " ";
  return option.value.find("[,") == std::string::npos
             ? "(" + joined(words, " ") + ")"
             : "_values -s , " + shell_word("value") + " " + joined(words, " ");
}

// '(-d --dtype)--dtype=[dtype of x]:DTYPE:(f32 bf16 f16)'
std::string show_option(const HelpPage::Option& option) {
  std::string text;
  for (const std::string& name : option.names) {
    std::string spec = fmt::format("({}){}", joined(option.names, " "), name);
    if (!option.value.empty()) spec += name.starts_with("--") ? "=" : "+";
    spec += "[" + escaped(short_purpose(option)) + "]";
    if (!option.value.empty())
      spec += fmt::format(":{}:{}", escaped(option.value), action_of(option));
    text += " \\\n        " + shell_word(spec);
  }
  return text;
}

std::string show_group(const AlikePages& group) {
  std::string text =
      fmt::format("    ({})\n      _arguments -s -S", joined(shell_words(group.names), "|"));
  for (const HelpPage::Option& option : group.page->options) text += show_option(option);
  if (!group.page->words.empty())
    text += " \\\n        " + shell_word("1:word:(" + joined(group.page->words, " ") + ")");
  if (group.names[0] == "run")
    text += " \\\n        '(-)1:command: _command_names -e' '*::argument: _normal'";
  return text + "\n      ;;\n";
}

std::string show_words(std::string_view name, const std::vector<HelpPage::Entry>& entries) {
  std::string text = fmt::format("  {}=(\n", name);
  for (const auto& [word, summary] : entries)
    text +=
        "    " + shell_word(escaped(word) + (summary.empty() ? "" : ":" + escaped(summary))) + "\n";
  return text + "  )\n";
}

constexpr const char* kHead = R"(#compdef plait
# Completion of plait in zsh, by `plait completion zsh`. Made from --help.

_plait() {
  local page=$words[2]
  local -a verbs subpages
)";

constexpr const char* kFirst = R"(  if ((CURRENT == 2)); then
    _describe verb verbs
    _arguments '(- *)'{-h,--help}'[print the verbs]' '(- *)--version[print the version]'
    return
  fi
  case $page in
    (help|man) ((CURRENT > 3)) || _describe verb verbs; return ;;
)";

constexpr const char* kSecond = R"(  esac
  if (($#subpages)); then
    if ((CURRENT == 3)); then
      _describe word subpages
      return
    fi
    page="$page $words[3]"
    shift words
    ((CURRENT--))
  fi
  shift words
  ((CURRENT--))
  case $page in
)";

constexpr const char* kEnd = R"(  esac
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _plait "$@"
else
  compdef _plait plait
fi
)";

}  // namespace

std::string write_zsh_completion(const Pages& pages) {
  std::string text = kHead + show_words("verbs", first_words(pages)) + kFirst;
  text += fmt::format("    (completion) ((CURRENT > 3)) || compadd {}; return ;;\n", kShells);
  for (const HelpPage& page : pages) {
    if (page.name.empty() || page.subpages.empty()) continue;
    text += fmt::format("    ({})\n{}      ;;\n", page.name, show_words("subpages", page.subpages));
  }
  text += kSecond;
  for (const AlikePages& group : group_pages(pages)) text += show_group(group);
  return text + kEnd;
}

}  // namespace plait::cli
