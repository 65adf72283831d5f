// The command: finds the verb, and turns what it throws into a sentence and an exit status.
#include <fmt/core.h>

#include <array>
#include <csignal>
#include <exception>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/nearest.h"
#include "cli/speech.h"
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
    {"run", "start ranks on this host and look after them", run},
    {"bench", "what operators, layers, models and products take here, beside the best possible",
     bench},
    {"tune", "which plan is the fastest here; measured, and kept", tune},
    {"trace", "a timeline of an operator: what each rank does, and what is hidden", trace},
    {"predict", "what takes how long on devices and networks that are not here", predict},
    {"verify", "random problems, every schedule, bit for bit against the serial one", verify},
    {"info", "what plait finds here: processor, memory, transports, backends, and why", info},
}};

void print_help() {
  std::string page =
      "Tensor-parallel communication braided into the matrix product.\n\n"
      "Usage: plait VERB [OPTIONS]\n\n"
      "Verbs:\n";
  for (const Verb& verb : kVerbs) page += fmt::format("  {:<10} {}\n", verb.name, verb.summary);
  page +=
      "\nOptions:\n"
      "  -h, --help     print this page; after a verb, the verb's own\n"
      "  --version      print the version\n\n"
      "Exit status: 0 done, 1 a check failed, 2 wrong usage, 3 a peer was lost.\n"
      "plait run answers with the status of the first rank that failed.\n\n"
      "Examples:\n"
      "  plait run -n 4 -- python train.py    four ranks of one program\n"
      "  plait info                           what is here, and what is missing\n"
      "  plait bench matmul --help            how to measure a product\n"
      "  plait run --help                     everything about one verb\n";
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
  PLAIT_CHECK(!words.empty(), "say what to do, such as plait run or plait info (plait --help)");
  const std::string& first = words[0];
  if (first == "--version") {
    answer(fmt::format("plait {}\n", kVersion));
    return kDone;
  }
  if (first == "-h" || first == "--help" || (first == "help" && words.size() == 1)) {
    print_help();
    return kDone;
  }
  if (first == "help") {
    // plait help bench matmul
    std::vector<std::string> page(words.begin() + 2, words.end());
    page.emplace_back("--help");
    return find_verb(words[1]).run(page);
  }
  const Verb& verb = find_verb(first);
  speaker += " " + first;
  // What is too long for a limit on files is refused in a sentence then. Whom `run` starts may see
  // it otherwise.
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
    plait::cli::complain(speaker, error.what());
    return plait::cli::exit_status(error.code());
  } catch (const std::exception& error) {
    plait::cli::complain(speaker, error.what());
    return plait::cli::kCheckFailed;
  }
}
