#include "cli/pages/pages.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/nearest.h"
#include "base/text.h"
#include "cli/console.h"

namespace plait::cli {
namespace {

// A verb throws its page where it would print it: its options are in its own variables.
HelpPage describe(const Verb& verb, std::vector<std::string> words) {
  words.emplace_back(kDescribe);
  try {
    verb.run(words);
  } catch (const HelpPage& page) {
    return page;
  }
  base::fail(Code::system, "plait ", verb.name, " has no page of help");
}

bool is_word(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char letter) {
    return (letter >= 'a' && letter <= 'z') || letter == '-';
  });
}

// Prints the help of a word that is no verb, and returns the exit status.
int show_help(Words words, const char* usage, const char* purpose, const char* examples) {
  const HelpPage page = {.name = "",
                         .usage = usage,
                         .purpose = purpose,
                         .options = {{.names = {"-h", "--help"}, .purpose = "print this page"}},
                         .examples = examples};
  show_overview(page, words);
  return kDone;
}

}  // namespace

Pages collect_pages(HelpPage overview, std::span<const Verb> verbs) {
  Pages pages = {std::move(overview)};
  for (const Verb& verb : verbs) {
    HelpPage page = describe(verb, {});
    const std::vector<HelpPage::Entry> subpages = page.subpages;
    pages.push_back(std::move(page));
    for (const HelpPage::Entry& subpage : subpages) {
      pages.push_back(describe(verb, {subpage.name}));
      pages.back().name = base::sentence(verb.name, ' ', subpage.name);
    }
  }
  return pages;
}

std::vector<std::string> names_of(const std::vector<HelpPage::Entry>& entries) {
  std::vector<std::string> names(entries.size());
  std::transform(entries.begin(), entries.end(), names.begin(),
                 [](const HelpPage::Entry& entry) { return entry.name; });
  return names;
}

const HelpPage& find_page(const Pages& pages, const std::string& name) {
  std::vector<std::string> names;
  for (const HelpPage& page : pages) {
    if (page.name == name) return page;
    names.push_back(page.name);
  }
  base::fail(Code::invalid_argument, "unknown verb ", name, base::did_you_mean(name, names),
             " (plait --help lists them)");
}

std::vector<std::string> words_of(const HelpPage::Option& option) {
  if (!option.choices.empty()) return option.choices;
  std::vector<std::string> words;
  for (const std::string_view word : base::split(option.value, '|')) {
    if (!is_word(word)) return {};
    words.emplace_back(word);
  }
  return words;
}

bool takes_file(const HelpPage::Option& option) { return option.value.starts_with("FILE"); }

int print_manual(const Pages& pages, Words words) {
  if (asks_for_help(words)) {
    return show_help(words, "man [VERB]", "Prints the manual page of a verb, or of the command.",
                     "Example:\n  plait man bench | man -l -\n");
  }
  PLAIT_CHECK(words.size() <= 1, "plait man takes one verb, or none");
  answer(write_manual(pages, words.empty() ? "" : words[0]));
  return kDone;
}

int print_completion(const Pages& pages, Words words) {
  if (asks_for_help(words)) {
    return show_help(words, "completion bash|zsh|fish",
                     "Prints a script by which a shell completes plait's words.",
                     "Examples:\n"
                     "  eval \"$(plait completion bash)\"        in .bashrc\n"
                     "  source <(plait completion zsh)         in .zshrc, after compinit\n"
                     "  plait completion fish | source         in config.fish\n");
  }
  const std::string shell = words.size() == 1 ? words[0] : "";
  if (shell == "bash") return answer(write_bash_completion(pages)), kDone;
  if (shell == "zsh") return answer(write_zsh_completion(pages)), kDone;
  PLAIT_CHECK(shell == "fish", "plait completion takes a shell: bash, zsh or fish");
  return answer(write_fish_completion(pages)), kDone;
}

}  // namespace plait::cli
