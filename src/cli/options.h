// The options of one verb. CLI11 parses them and prints the help. Errors for which CLI11 has its
// own text are detected here first, and reported in one sentence that names the word.
//
//   Options options({.verb = "run", .usage = "-n N [--] CMD", .purpose = "...", .examples = ""});
//   options.add("-n,--ranks", "N", ranks, "how many ranks to start");
//   if (!options.parse(words.first(options.leading(words)))) return kDone;   // help was printed
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/verbs.h"

// Forward declarations, because CLI11's header takes long to compile; only options.cc includes it.
namespace CLI {  // NOLINT(readability-identifier-naming): theirs
class App;
class Option;
}  // namespace CLI

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
  ~Options();

  // Adds an option with a value, shown as `value` in the help. `into` gets the text as typed.
  void add(const std::string& names, const std::string& value, std::string& into,
           const std::string& purpose);
  void add_flag(const std::string& names, bool& into, const std::string& purpose);

  // How many words come before the first that is neither an option nor the value of one. Refuses an
  // unknown option, and one without its value.
  std::size_t leading(Words words) const;

  // Parses words that are all options. False: help was requested and has been printed.
  bool parse(Words words);

  // Parses words like parse(), but first refuses any that is not an option.
  bool parse_all(Words words);

 private:
  const CLI::Option& find(const std::string& name) const;
  std::size_t length_of_option(Words words) const;

  std::string verb_;
  std::unique_ptr<CLI::App> app_;
};

}  // namespace plait::cli
