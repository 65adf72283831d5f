#include "cli/help_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "cli/console.h"

namespace plait::cli {
namespace {

std::string show_list(const HelpPage::List& list) {
  std::size_t widest = 0;
  for (const HelpPage::Entry& entry : list.entries) widest = std::max(widest, entry.name.size());
  std::string text = "\n" + list.title + ":\n";
  for (const auto& [name, summary] : list.entries) {
    text += summary.empty() ? fmt::format("  {}\n", name)
                            : fmt::format("  {:<{}}  {}\n", name, widest, summary);
  }
  return text;
}

std::string show_usage(const std::string& usage) {
  std::string text;
  for (const std::string_view line : base::split(usage, '\n'))
    text += fmt::format("{}plait {}\n", text.empty() ? "Usage: " : "       ", line);
  return text;
}

}  // namespace

void show_overview(const HelpPage& page, Words words) {
  if (words[0] == kDescribe) throw HelpPage(page);
  std::string text = page.purpose + "\n\n" + show_usage(page.usage);
  for (const HelpPage::List& list : page.lists) text += show_list(list);
  HelpPage::List options = {.title = "Options", .entries = {}};
  for (const HelpPage::Option& option : page.options)
    options.entries.push_back({fmt::format("{}", fmt::join(option.names, ", ")), option.purpose});
  answer(text + show_list(options) + "\n" + page.examples);
}

}  // namespace plait::cli
