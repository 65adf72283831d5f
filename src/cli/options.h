// The options of one verb: CLI11 reads them and prints the help, and what it would refuse in its
// own words is refused here first, in one sentence that names the word.
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

// Seen by options.cc alone: it takes long to compile.
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

  // An option with a value, shown as `value` in the help, and kept as it was typed.
  void add(const std::string& names, const std::string& value, std::string& into,
           const std::string& purpose);
  void add_flag(const std::string& names, bool& into, const std::string& purpose);

  // How many of the words come before the first that is neither an option nor an option's value.
  // Refuses an option that does not exist or lacks its value.
  std::size_t leading(Words words) const;

  // Reads words that are all options. False: help was asked for, and has been printed.
  bool parse(Words words);

  // The same of words of which some may be none: refuses those.
  bool parse_all(Words words);

 private:
  const CLI::Option& find(const std::string& name) const;
  std::size_t length_of_option(Words words) const;

  std::string verb_;
  std::unique_ptr<CLI::App> app_;
};

}  // namespace plait::cli
