// The command: finds the verb, and turns an exception into a message and an exit status.
#include <array>
#include <csignal>
#include <exception>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/nearest.h"
#include "cli/console.h"
#include "cli/help_page.h"
#include "cli/pages/pages.h"
#include "cli/verbs.h"
#include "plait/version.h"

namespace plait::cli {
namespace {

constexpr std::array<Verb, 7> kVerbs = {{
    {"run", "start ranks on this host, or on several, and supervise them", run},
    {"bench", "measure operators, layers, models and products on this machine", bench},
    {"tune", "measure the fastest plans on this machine and store them", tune},
    {"trace", "draw a timeline of an operator on all ranks", trace},
    {"predict", "predict times on other devices and networks", predict},
    {"verify", "check every schedule bit for bit on random problems", verify},
    {"info", "show processor, memory, settings, transports and backends", info},
}};

HelpPage overview() {
  HelpPage page = {.name = "",
                   .usage = "VERB [OPTIONS]",
                   .purpose = "Tensor-parallel communication overlapped with the matrix product.",
                   .lists = {{.title = "Verbs", .entries = {}}},
                   .options = {{.names = {"-h", "--help"},
                                .purpose = "print this page; after a verb, its options"},
                               {.names = {"--version"}, .purpose = "print the version"}},
                   .examples =
                       "Manual pages and completion:\n"
                       "  plait man [VERB]\n"
                       "  plait completion bash|zsh|fish\n\n"
                       "Exit status: 0 done, 1 a check failed, 2 wrong usage, 3 a peer was lost.\n"
                       "plait run returns the status of the first rank that failed.\n\n"
                       "Examples:\n"
                       "  plait run -n 4 -- python train.py    start four ranks of one program\n"
                       "  plait info                           show what plait finds here\n"
                       "  plait bench matmul --help            show how to measure a product\n"
                       "  plait run --help                     show the options of one verb\n"};
  for (const Verb& verb : kVerbs) page.lists[0].entries.push_back({verb.name, verb.summary});
  return page;
}

const Verb& find_verb(const std::string& name) {
  std::vector<std::string> names = {"help", "man", "completion", "--help", "--version"};
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
    answer(base::sentence("plait ", kVersion, "\n"));
    return kDone;
  }
  const Words rest = words.subspan(1);
  if (asks_for_help(words) || (first == "help" && (rest.empty() || asks_for_help(rest)))) {
    show_overview(overview(), words);
    return kDone;
  }
  if (first == "man") return print_manual(collect_pages(overview(), kVerbs), rest);
  if (first == "completion") return print_completion(collect_pages(overview(), kVerbs), rest);
  if (first == "help") {
    // plait help bench matmul is plait bench matmul --help.
    std::vector<std::string> page(rest.begin(), rest.end());
    page.emplace_back("--help");
    return dispatch(page, speaker);
  }
  const Verb& verb = find_verb(first);
  speaker += " " + first;
  // With SIGXFSZ ignored, exceeding a limit on file sizes becomes an error message. `run` leaves
  // it, because the ranks that it starts would inherit the setting.
  if (first != "run") std::signal(SIGXFSZ, SIG_IGN);
  return verb.run(rest);
}

}  // namespace
}  // namespace plait::cli

int main(int argc, char** argv) {
  std::string speaker = "plait";
  try {
    const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
    return plait::cli::dispatch(words, speaker);
  } catch (const plait::cli::HelpPage&) {  // only collect_pages() asks for it
    plait::cli::complain(speaker, "unknown option --describe (plait --help)");
    return plait::cli::kWrongUsage;
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
