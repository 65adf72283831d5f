// Completion in bash. The script needs nothing but bash.
#include <fmt/format.h>

#include "cli/pages/completion.h"

namespace plait::cli {
namespace {

// In the script, `values` is empty for a flag, / for a file, - for what can't be completed.
std::string values_of(const HelpPage::Option& option) {
  if (takes_file(option)) return "/";
  const std::vector<std::string> words = words_of(option);
  return words.empty() ? "-" : joined(words, " ");
}

std::string show_group(const AlikePages& group) {
  std::vector<std::string> names;
  std::string cases;
  for (const HelpPage::Option& option : group.page->options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
    if (option.value.empty()) continue;
    cases += fmt::format("        {}) values={} ;;\n", joined(option.names, " | "),
                         shell_word(values_of(option)));
  }
  std::string text =
      fmt::format("    {})\n      options={}\n", joined(shell_words(group.names), " | "),
                  shell_word(joined(names, " ")));
  if (!group.page->words.empty())
    text += fmt::format("      operands={}\n", shell_word(joined(group.page->words, " ")));
  if (!cases.empty()) text += "      case $2 in\n" + cases + "      esac\n";
  return text + "      ;;\n";
}

std::string show_subpages(const Pages& pages) {
  std::string text;
  for (const HelpPage& page : pages) {
    if (page.name.empty() || page.subpages.empty()) continue;
    text += fmt::format("    {}) subpages={} ;;\n", page.name,
                        shell_word(joined(names_of(page.subpages), " ")));
  }
  return text;
}

constexpr const char* kHead =
    R"(# Completion of plait in bash, by `plait completion bash`. Made from --help.

# _plait_page PAGE OPTION: sets `options`, `operands`, and the `values` of the option.
_plait_page() {
  case $1 in
)";

constexpr const char* kMiddle = R"(  esac
}

# _plait_subpages VERB: sets the words that may follow it, if its options depend on them.
_plait_subpages() {
  case $1 in
)";

constexpr const char* kEnd = R"(  esac
}

# _plait_operand FIRST: sets `operand` to the place of the first word that is no option.
_plait_operand() {
  local at=$1 values
  while ((at < COMP_CWORD)); do
    case ${COMP_WORDS[at]} in
      --) operand=$((at + 1)); return ;;
      -*)
        values=
        _plait_page "$page" "${COMP_WORDS[at]}"
        at=$((at + 1))
        [[ ${COMP_WORDS[at]} != = ]] || at=$((at + 1))
        [[ -z $values ]] || at=$((at + 1))
        ;;
      *) operand=$at; return ;;
    esac
  done
  operand=$at
}

_plait_reply() {
  local prefix=
  [[ $word != *,* ]] || prefix=${word%,*},
  mapfile -t COMPREPLY < <(compgen -P "$prefix" -W "$1" -- "${word##*,}")
}

# The words after `plait run`: a command, then its own.
_plait_command() {
  if declare -F _command_offset >/dev/null; then
    _command_offset "$operand"
  elif ((COMP_CWORD == operand)); then
    mapfile -t COMPREPLY < <(compgen -c -- "$word")
    compopt -o default
  else
    compopt -o default
  fi
}

_plait() {
  local word=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD - 1]} page=${COMP_WORDS[1]}
  local first=2 operand=0 options= operands= values= subpages=
  COMPREPLY=()
  # bash divides --bind=core into three words.
  [[ $option != = ]] || option=${COMP_WORDS[COMP_CWORD - 2]}
  [[ $word != = ]] || word=
  case $COMP_CWORD-$page in
    1-*) _plait_reply "$_plait_first -h --help --version"; return ;;
    2-help | 2-man) _plait_reply "$_plait_verbs"; return ;;
    2-completion) _plait_reply "$_plait_shells"; return ;;
  esac
  _plait_subpages "$page"
  if [[ -n $subpages ]]; then
    ((COMP_CWORD > 2)) || { _plait_reply "$subpages -h --help"; return; }
    page="$page ${COMP_WORDS[2]}" first=3
  fi
  _plait_operand "$first"
  if [[ $page == run ]] && ((COMP_CWORD > operand || (COMP_CWORD == operand && operand > first))) &&
    [[ $word != -* || ${COMP_WORDS[operand - 1]} == -- ]]; then
    options= values=
    _plait_page "$page" "$option"
    if [[ -z $values || ${COMP_WORDS[operand - 1]} == -- ]]; then _plait_command; return; fi
  fi
  values= options= operands=
  _plait_page "$page" "$option"
  case $values in
    '') [[ $operand == "$COMP_CWORD" ]] || operands=
      _plait_reply "$operands $options" ;;
    /) compopt -o default ;;
    -) ;;
    *) _plait_reply "$values" ;;
  esac
}
complete -F _plait plait
)";

}  // namespace

std::string write_bash_completion(const Pages& pages) {
  std::string text = kHead;
  for (const AlikePages& group : group_pages(pages)) text += show_group(group);
  text += kMiddle + show_subpages(pages) + kEnd;
  return text + fmt::format("_plait_first={}\n_plait_verbs={}\n_plait_shells={}\n",
                            shell_word(joined(names_of(first_words(pages)), " ")),
                            shell_word(joined(names_of(pages[0].lists[0].entries), " ")),
                            shell_word(kShells));
}

}  // namespace plait::cli
