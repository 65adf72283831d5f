// The options of one verb. CLI11 parses them and prints the help. Errors for which CLI11 has its
// own text are detected here first, and reported in one sentence that names the word.
//
//   Options options({.verb = "run", .usage = "-n N [--] CMD", .purpose = "...", .examples = ""});
//   options.add("-n,--ranks", whole(1, 1024), ranks, "how many ranks to start");
//   if (!options.parse(words.first(options.leading(words)))) return kDone;   // help was printed
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "cli/help_page.h"
#include "cli/verbs.h"

// Forward declarations, because CLI11's header takes long to compile; only options.cc includes it.
namespace CLI {  // NOLINT(readability-identifier-naming): theirs
class App;
class Option;
}  // namespace CLI

namespace plait::cli {

template <class Read>
struct Kind;  // values.h

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

  // Adds an option with a value, shown as `value` in the help. `into` gets the text as typed. Names
  // after a | are accepted, but not shown: "--seq|--sequence".
  void add(const std::string& names, const std::string& value, std::string& into,
           const std::string& purpose) {
    add(
        names, value, into, [](std::string_view, const std::string& text) { return text; },
        purpose);
  }

  // `into` gets what `read(option, text)` makes of the text. It is called after everything has been
  // parsed, if the option was given, in the order of these calls.
  template <class Into, class Read>
  void add(const std::string& names, const std::string& value, Into& into, Read read,
           const std::string& purpose) {
    add_reader(names, value, purpose,
               [&into, read = std::move(read)](std::string_view option, const std::string& text) {
                 if constexpr (std::is_arithmetic_v<Into>)
                   into = static_cast<Into>(read(option, text));
                 else
                   into = read(option, text);
               });
  }
  template <class Into, class Read>
  void add(const std::string& names, const Kind<Read>& kind, Into& into,
           const std::string& purpose) {
    add(names, kind.value, into, kind.read, purpose);
    if (kind.choices != nullptr) offer(kind.choices());
  }
  void add_flag(const std::string& names, bool& into, const std::string& purpose);
  // Names known values of the option that was added last, for completion in a shell.
  void offer(std::vector<std::string> choices);
  // Names known words in the place of the first operand.
  void offer_operands(std::vector<std::string> words);

  bool is_given(const std::string& name) const;
  // The word that was typed after an option; empty if it was not given.
  std::string typed(const std::string& name) const;
  // "--m 64", "--missing"
  std::string as_given(const std::string& name) const;

  // How many words come before the first that is neither an option nor the value of one. Refuses an
  // unknown option, and one without its value.
  std::size_t leading(Words words) const;

  // Parses words that are all options. False: help was requested and has been printed. Throws a
  // HelpPage if kDescribe is among them.
  bool parse(Words words);

  // Parses words like parse(), but first refuses any that is not an option.
  bool parse_all(Words words);

 private:
  using Reader = std::function<void(std::string_view option, const std::string& text)>;
  struct ReadOption;

  // All names, without the bar, for CLI11; notes which are hidden.
  std::string accepted(const std::string& names);
  void add_reader(const std::string& names, const std::string& value, const std::string& purpose,
                  Reader read);
  const CLI::Option& find(const std::string& name) const;
  HelpPage page() const;
  std::size_t length_of_option(Words words) const;

  std::string verb_;
  HelpPage page_;  // without the options
  std::unique_ptr<CLI::App> app_;
  std::vector<ReadOption> read_options_;
  std::shared_ptr<std::vector<std::string>> hidden_;  // names that the help doesn't show
};

}  // namespace plait::cli
