// Manual pages, in the language of man(7).
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <ctime>
#include <set>

#include "base/env.h"
#include "base/text.h"
#include "cli/pages/pages.h"
#include "plait/version.h"

namespace plait::cli {
namespace {

constexpr std::size_t kWidth = 78;  // of lines in the source

// Text in which nothing is a command.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char letter : text) {
    if (letter == '\\') {
      result += "\\e";
    } else if (letter == '-' || letter == '^' || letter == '~') {
      result += fmt::format("\\{}", letter == '-' ? "-" : letter == '^' ? "(ha" : "(ti");
    } else {
      result += letter;
    }
  }
  return result;
}

// A line that begins with a dot or a quotation mark would be a command.
std::string guarded(const std::string& line) {
  return line.starts_with('.') || line.starts_with('\'') ? "\\&" + line : line;
}

std::string bold(std::string_view text) { return "\\fB" + escaped(text) + "\\fR"; }

// Words, as many on a line as there is space for.
std::string filled(std::string_view text) {
  std::string result;
  std::string line;
  for (const std::string_view row : base::split(text, '\n')) {
    for (const std::string_view word : base::split(row, ' ')) {
      if (word.empty()) continue;
      const std::string next = escaped(word);
      if (!line.empty() && line.size() + 1 + next.size() > kWidth) {
        result += guarded(line) + '\n';
        line.clear();
      }
      line += (line.empty() ? "" : " ") + next;
    }
  }
  return result + guarded(line) + '\n';
}

std::string upper(std::string text) {
  for (char& letter : text)
    letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return text;
}

std::string section(std::string_view title) {
  return ".SH " + escaped(upper(std::string(title))) + '\n';
}

// Today, or the day that a reproducible build asks for.
std::string date() {
  const auto chosen = base::parse_int(base::env("SOURCE_DATE_EPOCH").value_or(""));
  const std::time_t now = chosen ? static_cast<std::time_t>(*chosen) : std::time(nullptr);
  std::tm day = {};
  gmtime_r(&now, &day);
  return fmt::format("{:04}-{:02}-{:02}", day.tm_year + 1900, day.tm_mon + 1, day.tm_mday);
}

// Paragraphs are separated by empty lines.
std::vector<std::string> paragraphs_of(std::string_view text) {
  std::vector<std::string> paragraphs(1);
  for (const std::string_view line : base::split(text, '\n')) {
    if (line.empty()) {
      paragraphs.emplace_back();
    } else {
      paragraphs.back() += std::string(line) + '\n';
    }
  }
  std::erase_if(paragraphs, [](const std::string& paragraph) { return paragraph.empty(); });
  return paragraphs;
}

// Lines as they are.
std::string show_commands(std::string_view lines) {
  std::string result = ".nf\n";
  for (const std::string_view line : base::split(lines, '\n')) {
    const std::size_t start = line.find_first_not_of(' ');
    if (start != std::string_view::npos) result += guarded(escaped(line.substr(start))) + '\n';
  }
  return result + ".fi\n";
}

std::string show_usage(const HelpPage& page) {
  std::string lines;
  for (const std::string_view line : base::split(page.usage, '\n'))
    lines += fmt::format("plait {}\n", line);
  return show_commands(lines);
}

std::string show_entry(std::string_view head, std::string_view text) {
  return fmt::format(".TP\n{}\n{}", head, filled(text));
}

// An indented paragraph is a list of words and, after two spaces, what they mean.
std::string show_words(std::string_view paragraph) {
  std::string result;
  for (std::string_view line : base::split(paragraph, '\n')) {
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    const std::size_t end = std::min(line.find("  "), line.size());
    if (!line.empty()) result += show_entry(bold(line.substr(0, end)), line.substr(end));
  }
  return result;
}

std::string show_text(std::string_view text) {
  std::string result;
  for (const std::string& paragraph : paragraphs_of(text)) {
    if (paragraph.starts_with("  ")) {
      result += show_words(paragraph);
    } else {
      result += (result.empty() ? "" : ".PP\n") + filled(paragraph);
    }
  }
  return result;
}

std::string show_options(const HelpPage& page) {
  std::string result;
  for (const HelpPage::Option& option : page.options) {
    std::string head;
    for (const std::string& name : option.names) head += (head.empty() ? "" : ", ") + bold(name);
    if (!option.value.empty()) head += " \\fI" + escaped(option.value) + "\\fR";
    result += show_entry(head, option.purpose);
  }
  return result;
}

std::string show_list(const HelpPage::List& list) {
  std::string result = section(list.title);
  if (!list.entries.empty() && list.entries[0].summary.empty()) {
    return result + filled(fmt::format("{}", fmt::join(names_of(list.entries), ", ")));
  }
  for (const HelpPage::Entry& entry : list.entries)
    result += show_entry(bold(entry.name), entry.summary);
  return result;
}

// Exit statuses, and commands below a line that ends with a colon: sections of a page, paragraphs
// of a subpage.
std::string show_end(const HelpPage& page, bool as_sections) {
  constexpr std::string_view kStatus = "Exit status: ";
  std::string result;
  for (const std::string& paragraph : paragraphs_of(page.examples)) {
    const std::string_view text = paragraph;
    const std::string_view first = text.substr(0, text.find('\n'));
    if (first.ends_with(':')) {
      const std::string_view title = first.substr(0, first.size() - 1);
      result += (as_sections ? section(title) : ".PP\n" + filled(first) + ".PP\n") +
                show_commands(text.substr(first.size()));
    } else if (as_sections && text.starts_with(kStatus)) {
      result += section("Exit status") + filled(text.substr(kStatus.size()));
    } else {
      result += ".PP\n" + filled(text);
    }
  }
  return result;
}

bool are_alike(const HelpPage& one, const HelpPage& other) {
  const auto names = [](const HelpPage& page) {
    std::vector<std::string> all = {page.purpose, page.examples};
    for (const HelpPage::Option& option : page.options) {
      all.insert(all.end(), option.names.begin(), option.names.end());
      all.insert(all.end(), {option.value, option.purpose});
    }
    return all;
  };
  return names(one) == names(other);
}

// A section for each kind of subpages: operators have the same options.
std::string show_subpages(const Pages& pages, const HelpPage& page) {
  std::string result;
  std::set<std::string> shown;
  for (const HelpPage::Entry& entry : page.subpages) {
    const HelpPage& subpage = find_page(pages, page.name + ' ' + entry.name);
    std::vector<std::string> names;
    for (const HelpPage::Entry& other : page.subpages) {
      if (are_alike(find_page(pages, page.name + ' ' + other.name), subpage))
        names.push_back(other.name);
    }
    if (!shown.insert(names[0]).second) continue;
    result += section(fmt::format("plait {} {}", page.name, names[0]) +
                      (names.size() > 1 ? " and others" : ""));
    if (names.size() > 1)
      result +=
          filled(fmt::format("These are the options of {}.", fmt::join(names, ", "))) + ".PP\n";
    result += show_usage(subpage) + ".PP\n" + show_text(subpage.purpose) + show_options(subpage) +
              show_end(subpage, false);
  }
  return result;
}

std::string summary_of(const Pages& pages, const std::string& verb) {
  for (const HelpPage::Entry& entry : pages[0].lists[0].entries)
    if (entry.name == verb) return entry.summary;
  std::string summary = pages[0].purpose;
  if (summary.ends_with('.')) summary.pop_back();
  summary[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(summary[0])));
  return summary;
}

std::string show_others(const Pages& pages, const std::string& verb) {
  std::vector<std::string> others;
  if (!verb.empty()) others.push_back(bold("plait") + "(1)");
  for (const HelpPage::Entry& entry : pages[0].lists[0].entries)
    if (entry.name != verb) others.push_back(bold("plait-" + entry.name) + "(1)");
  return section("See also") + fmt::format("{}\n", fmt::join(others, ",\n"));
}

}  // namespace

std::string write_manual(const Pages& pages, const std::string& verb) {
  const HelpPage& page = find_page(pages, verb);
  const std::string title = verb.empty() ? "plait" : "plait-" + verb;
  std::string text = fmt::format(
      ".\\\" Made by plait man, from the command's table of options.\n"
      ".TH {} 1 {} \"plait {}\" \"plait manual\"\n",
      escaped(upper(title)), date(), kVersion);
  text += section("Name") + escaped(title) + " \\- " + escaped(summary_of(pages, verb)) + '\n';
  text += section("Synopsis") + show_usage(page);
  text += section("Description") + show_text(page.purpose);
  for (const HelpPage::List& list : page.lists) text += show_list(list);
  text += section("Options") + show_options(page);
  text += show_subpages(pages, page);
  return text + show_end(page, true) + show_others(pages, verb);
}

}  // namespace plait::cli
