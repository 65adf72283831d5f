#include "cli/pages/completion.h"

#include <fmt/format.h>

#include <algorithm>

namespace plait::cli {
namespace {

bool have_same_options(const HelpPage& one, const HelpPage& other) {
  const auto same = [](const HelpPage::Option& left, const HelpPage::Option& right) {
    return left.names == right.names && left.value == right.value &&
           left.choices == right.choices && left.purpose == right.purpose;
  };
  return one.words == other.words && std::equal(one.options.begin(), one.options.end(),
                                                other.options.begin(), other.options.end(), same);
}

}  // namespace

std::vector<AlikePages> group_pages(const Pages& pages) {
  std::vector<AlikePages> groups;
  for (const HelpPage& page : pages) {
    if (page.name.empty()) continue;
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const AlikePages& group) {
      return have_same_options(*group.page, page);
    });
    if (found == groups.end()) {
      groups.push_back({.names = {page.name}, .page = &page});
    } else {
      found->names.push_back(page.name);
    }
  }
  return groups;
}

std::vector<HelpPage::Entry> first_words(const Pages& pages) {
  std::vector<HelpPage::Entry> words = pages[0].lists[0].entries;
  words.push_back({"help", "print the options of a verb"});
  words.push_back({"man", "print a manual page"});
  words.push_back({"completion", "print a script for a shell"});
  return words;
}

std::string short_purpose(const HelpPage::Option& option) {
  std::string text = option.purpose;
  std::replace(text.begin(), text.end(), '\n', ' ');
  for (const char* end : {" (", "; ", ". "}) text = text.substr(0, text.find(end));
  return text;
}

std::string shell_word(std::string_view text) {
  std::string result = "'";
  for (const char letter : text) {
    if (letter == '\'') {
      result += "'\\''";
    } else {
      result += letter;
    }
  }
  return result + "'";
}

std::vector<std::string> shell_words(const std::vector<std::string>& texts) {
  std::vector<std::string> words(texts.size());
  std::transform(texts.begin(), texts.end(), words.begin(), shell_word);
  return words;
}

std::string joined(const std::vector<std::string>& words, std::string_view between) {
  return fmt::format("{}", fmt::join(words, between));
}

}  // namespace plait::cli
