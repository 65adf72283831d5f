#include "cli/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/check.h"
#include "base/nearest.h"
#include "base/text.h"
#include "cli/console.h"

namespace plait::cli {
namespace {

using Names = std::vector<std::string>;

Names shown_names(const CLI::Option& option, const Names& hidden) {
  Names names;
  const auto show = [&](const std::string& name) {
    if (std::find(hidden.begin(), hidden.end(), name) == hidden.end()) names.push_back(name);
  };
  for (const std::string& letter : option.get_snames()) show("-" + letter);
  for (const std::string& name : option.get_lnames()) show("--" + name);
  return names;
}

// A help page with a usage line that says what to type; CLI11's says only "[OPTIONS]".
class Formatter : public CLI::Formatter {
 public:
  Formatter(std::string usage, std::shared_ptr<const Names> hidden)
      : usage_(std::move(usage)), hidden_(std::move(hidden)) {
    column_width(30);
  }

  std::string make_usage(const CLI::App*, std::string) const override {
    return "\nUsage: " + usage_ + "\n";
  }

  std::string make_option_name(const CLI::Option* option, bool) const override {
    return fmt::format("{}", fmt::join(shown_names(*option, *hidden_), ", "));
  }

 private:
  std::string usage_;
  std::shared_ptr<const Names> hidden_;
};

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

}  // namespace

struct Options::ReadOption {
  CLI::Option* option;
  Reader read;
  std::vector<std::string> choices = {};
};

Options::Options(const About& about)
    : verb_(about.verb),
      page_({.name = verb_,
             .usage = fmt::format("{} {}", about.verb, about.usage),
             .purpose = std::string(about.purpose),
             .examples = std::string(about.examples)}),
      app_(std::make_unique<CLI::App>(std::string(about.purpose),
                                      fmt::format("plait {}", about.verb))),
      hidden_(std::make_shared<Names>()) {
  app_->formatter(
      std::make_shared<Formatter>(fmt::format("plait {} {}", about.verb, about.usage), hidden_));
  app_->footer(std::string(about.examples));
  app_->set_help_flag("-h,--help", "print this page");
  app_->add_flag(std::string(kDescribe))->group("");  // an empty group is not in the help
}

Options::~Options() = default;

std::string Options::accepted(const std::string& names) {
  const auto bar = names.find('|');
  if (bar == std::string::npos) return names;
  for (const std::string_view name : base::split(std::string_view(names).substr(bar + 1), ','))
    hidden_->emplace_back(name);
  return names.substr(0, bar) + ',' + names.substr(bar + 1);
}

void Options::add_reader(const std::string& names, const std::string& value,
                         const std::string& purpose, Reader read) {
  CLI::Option* option = app_->add_option(accepted(names))->description(purpose)->option_text(value);
  read_options_.push_back({.option = option, .read = std::move(read)});
}

void Options::add_flag(const std::string& names, bool& into, const std::string& purpose) {
  app_->add_flag(accepted(names), into, purpose);
}

void Options::offer(std::vector<std::string> choices) {
  read_options_.back().choices = std::move(choices);
}

void Options::offer_operands(std::vector<std::string> words) { page_.words = std::move(words); }

HelpPage Options::page() const {
  HelpPage page = page_;
  for (const CLI::Option* option : app_->get_options()) {
    if (option->get_group().empty()) continue;
    page.options.push_back({.names = shown_names(*option, *hidden_),
                            .value = option->get_option_text(),
                            .purpose = option->get_description()});
    for (const ReadOption& read : read_options_)
      if (read.option == option) page.options.back().choices = read.choices;
  }
  return page;
}

bool Options::is_given(const std::string& name) const { return find(name).count() > 0; }

std::string Options::as_given(const std::string& name) const {
  return find(name).get_expected_max() > 0 ? name + ' ' + typed(name) : name;
}

std::string Options::typed(const std::string& name) const {
  const CLI::Option& option = find(name);
  return option.count() == 0 ? "" : option.results().front();
}

const CLI::Option& Options::find(const std::string& name) const {
  if (const CLI::Option* option = app_->get_option_no_throw(name)) return *option;
  std::vector<std::string> names;
  for (const CLI::Option* option : app_->get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& known : option->get_lnames()) names.push_back("--" + known);
  }
  base::fail(Code::invalid_argument, "unknown option ", name, base::did_you_mean(name, names));
}

// -n 4 → 2, -n4 → 1, --ranks=4 → 1, -pv → 1
std::size_t Options::length_of_option(Words words) const {
  const std::string& word = words[0];
  std::string name = word.substr(0, word.find('='));
  bool value_inside = name.size() < word.size();
  if (!word.starts_with("--")) {
    std::size_t letter = 1;
    for (name = word.substr(0, 2); letter + 1 < word.size(); name = {'-', word[++letter]}) {
      if (find(name).get_expected_max() > 0 || word[letter + 1] == '=') break;
    }
    value_inside = letter + 1 < word.size();
  }
  const bool wants_value = find(name).get_expected_max() > 0;
  PLAIT_CHECK(wants_value || !value_inside, name, " takes no value");
  if (!wants_value || value_inside) return 1;
  PLAIT_CHECK(words.size() > 1 && words[1] != "--", name, " needs a value");
  return 2;
}

std::size_t Options::leading(Words words) const {
  std::size_t at = 0;
  while (at < words.size() && is_option(words[at]) && words[at] != "--")
    at += length_of_option(words.subspan(at));
  return at;
}

bool Options::parse_all(Words words) {
  const std::size_t options = leading(words);
  if (options < words.size()) {
    base::fail(Code::invalid_argument, "unexpected word ", words[options], " (plait ", verb_,
               " --help)");
  }
  return parse(words);
}

bool Options::parse(Words words) {
  std::vector<std::string> reversed(words.rbegin(), words.rend());
  try {
    app_->parse(reversed);
  } catch (const CLI::CallForHelp&) {
    answer(app_->help());
    return false;
  } catch (const CLI::ParseError& error) {
    for (const CLI::Option* option : app_->get_options()) {
      PLAIT_CHECK(option->count() < 2, "--", option->get_lnames().at(0),
                  " is given more than once");
    }
    base::fail(Code::invalid_argument, error.what());
  }
  if (is_given(std::string(kDescribe))) throw page();
  for (const auto& [option, read, choices] : read_options_) {
    if (option->count() > 0) read("--" + option->get_lnames().at(0), option->results().front());
  }
  return true;
}

}  // namespace plait::cli
