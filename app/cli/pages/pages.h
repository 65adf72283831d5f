// The command's help for other readers: manual pages, and completion in shells. Both come from the
// tables of options that the verbs have, so they can't differ from what --help prints.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/help_page.h"
#include "cli/verbs.h"

namespace plait::cli {

using Pages = std::vector<HelpPage>;

// All pages: the overview, and each verb's, followed by those of the verb's subpages.
Pages collect_pages(HelpPage overview, std::span<const Verb> verbs);

std::vector<std::string> names_of(const std::vector<HelpPage::Entry>& entries);

// The page of that name. Refuses a name that has none.
const HelpPage& find_page(const Pages& pages, const std::string& name);

// The verb's manual page, in the language of man(7), with those of its subpages. Empty: that of the
// command.
std::string write_manual(const Pages& pages, const std::string& verb);

// A script that completes the command's words.
std::string write_bash_completion(const Pages& pages);
std::string write_zsh_completion(const Pages& pages);
std::string write_fish_completion(const Pages& pages);

// The values of an option that a shell can complete: its choices, or "core", "numa" and "none" for
// core|numa|none.
std::vector<std::string> words_of(const HelpPage::Option& option);
bool takes_file(const HelpPage::Option& option);

// `plait man [VERB]` and `plait completion SHELL`.
int print_manual(const Pages& pages, Words words);
int print_completion(const Pages& pages, Words words);

}  // namespace plait::cli
