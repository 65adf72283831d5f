#include "cli/options.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/check.h"
#include "base/nearest.h"
#include "cli/console.h"

namespace plait::cli {
namespace {

// A help page with a usage line that says what to type; CLI11's says only "[OPTIONS]".
class Page : public CLI::Formatter {
 public:
  explicit Page(std::string usage) : usage_(std::move(usage)) { column_width(30); }

  std::string make_usage(const CLI::App*, std::string) const override {
    return "\nUsage: " + usage_ + "\n";
  }

  // Writes "-n, --ranks"; CLI11 leaves out the space.
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    std::string names = Formatter::make_option_name(option, is_positional);
    if (const auto comma = names.find(','); comma != std::string::npos)
      names.insert(comma + 1, " ");
    return names;
  }

 private:
  std::string usage_;
};

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

}  // namespace

Options::Options(const About& about)
    : verb_(about.verb),
      app_(std::make_unique<CLI::App>(std::string(about.purpose),
                                      fmt::format("plait {}", about.verb))) {
  app_->formatter(std::make_shared<Page>(fmt::format("plait {} {}", about.verb, about.usage)));
  app_->footer(std::string(about.examples));
  app_->set_help_flag("-h,--help", "print this page");
}

Options::~Options() = default;

void Options::add(const std::string& names, const std::string& value, std::string& into,
                  const std::string& purpose) {
  app_->add_option(names, into, purpose)->option_text(value);
}

void Options::add_flag(const std::string& names, bool& into, const std::string& purpose) {
  app_->add_flag(names, into, purpose);
}

const CLI::Option& Options::find(const std::string& name) const {
  if (const CLI::Option* option = app_->get_option_no_throw(name)) return *option;
  std::vector<std::string> names;
  for (const CLI::Option* option : app_->get_options()) {
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
  return true;
}

}  // namespace plait::cli
