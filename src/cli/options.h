// The options of one verb: CLI11 reads them and prints the help, and what it would refuse in its
// own words is refused here first, in one sentence that names the word.
//
//   Options options({.verb = "run", .usage = "-n N [--] CMD", .purpose = "...", .examples = ""});
//   options.add("-n,--ranks", "N", ranks, "how many ranks to start");
//   if (!options.parse(words.first(options.leading(words)))) return kDone;   // help was printed
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cli/verbs.h"

namespace plait::cli {

class Options {
 public:
  struct About {
    std::string_view verb;
    std::string_view usage;
    std::string_view purpose;
    std::string_view examples;
  };

  explicit Options(const About& about);

  // An option with a value, shown as `value` in the help.
  template <class Value>
  void add(const std::string& names, const std::string& value, Value& into,
           const std::string& purpose) {
    app_.add_option(names, into, purpose)->option_text(value);
  }
  void add_flag(const std::string& names, bool& into, const std::string& purpose) {
    app_.add_flag(names, into, purpose);
  }

  // How many of the words come before the first that is neither an option nor an option's value.
  // Refuses an option that does not exist or lacks its value.
  std::size_t leading(Words words) const;

  // Reads words that are all options. False: help was asked for, and has been printed.
  bool parse(Words words);

 private:
  const CLI::Option& find(const std::string& name) const;
  std::size_t length_of_option(Words words) const;

  CLI::App app_;
};

}  // namespace plait::cli
