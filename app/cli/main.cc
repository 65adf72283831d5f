// The command: finds the verb, and turns an exception into a message and an exit status.
#include <fmt/core.h>

#include <array>
#include <csignal>
#include <exception>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/nearest.h"
#include "cli/console.h"
#include "cli/verbs.h"
#include "plait/version.h"

namespace plait::cli {
namespace {

struct Verb {
  const char* name;
  const char* summary;
  int (*run)(Words);
};

constexpr std::array<Verb, 7> kVerbs = {{
    {"run", "start ranks on this host, or on several, and supervise them", run},
    {"bench", "measure operators, layers, models and products on this machine", bench},
    {"tune", "measure the fastest plans on this machine and store them", tune},
    {"trace", "draw a timeline of an operator on all ranks", trace},
    {"predict", "predict times on other devices and networks", predict},
    {"verify", "check every schedule bit for bit on random problems", verify},
    {"info", "show processor, memory, settings, transports and backends", info},
}};

void print_help() {
  std::string page =
      "Tensor-parallel communication overlapped with the matrix product.\n\n"
      "Usage: plait VERB [OPTIONS]\n\n"
      "Verbs:\n";
  for (const Verb& verb : kVerbs) page += fmt::format("  {:<10} {}\n", verb.name, verb.summary);
  page +=
      "\nOptions:\n"
      "  -h, --help     print this page; after a verb, its options\n"
      "  --version      print the version\n\n"
      "Exit status: 0 done, 1 a check failed, 2 wrong usage, 3 a peer was lost.\n"
      "plait run returns the status of the first rank that failed.\n\n"
      "Examples:\n"
      "  plait run -n 4 -- python train.py    start four ranks of one program\n"
      "  plait info                           show what plait finds here\n"
      "  plait bench matmul --help            show how to measure a product\n"
      "  plait run --help                     show the options of one verb\n";
  answer(page);
}

const Verb& find_verb(const std::string& name) {
  std::vector<std::string> names = {"help", "--help", "--version"};
  for (const Verb& verb : kVerbs) {
    if (name == verb.name) return verb;
    names.emplace_back(verb.name);
  }
  base::fail(Code::invalid_argument, name.starts_with("-") ? "unknown option " : "unknown verb ",
             name, base::did_you_mean(name, names), " (plait --help lists them)");
}

int dispatch(Words words, std::string& speaker) {
  PLAIT_CHECK(!words.empty(), "a verb is missing, such as plait run or plait info (plait --help)");
  const std::string& first = words[0];
  if (first == "--version") {
    answer(fmt::format("plait {}\n", kVersion));
    return kDone;
  }
  if (asks_for_help(words) || (first == "help" && words.size() == 1)) {
    print_help();
    return kDone;
  }
  if (first == "help") {
    // Handles, for example, plait help bench matmul.
    std::vector<std::string> page(words.begin() + 2, words.end());
    page.emplace_back("--help");
    return find_verb(words[1]).run(page);
  }
  const Verb& verb = find_verb(first);
  speaker += " " + first;
  // With SIGXFSZ ignored, exceeding a limit on file sizes becomes an error message. `run` leaves
  // it, because the ranks that it starts would inherit the setting.
  if (first != "run") std::signal(SIGXFSZ, SIG_IGN);
  return verb.run(words.subspan(1));
}

}  // namespace
}  // namespace plait::cli

int main(int argc, char** argv) {
  std::string speaker = "plait";
  try {
    const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
    return plait::cli::dispatch(words, speaker);
  } catch (const plait::Error& error) {
    if (plait::cli::has_lost_reader())
      return plait::cli::kReaderGone;  // quietly, as other tools do
    plait::cli::complain(speaker, error.what());
    return plait::cli::exit_status(error.code());
  } catch (const std::exception& error) {
    plait::cli::complain(speaker, error.what());
    return plait::cli::kCheckFailed;
  }
}
