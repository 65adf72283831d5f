// plait info: what is here, what is missing, and what would be chosen.
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "cli/info/findings.h"
#include "cli/info/show.h"
#include "cli/info/why.h"
#include "cli/options.h"
#include "cli/verbs.h"

namespace plait::cli {
namespace {

constexpr Options::About kAbout = {
    .verb = "info",
    .usage = "[--json] [--why [PROBLEM...]]",
    .purpose =
        "Prints what plait finds here: the processor and what it can do, memory and its pages,\n"
        "the limits of this container, the rank's place in its launcher's world, and which\n"
        "transports can be used, with the reason where one can't.",
    .examples =
        "Exit status: 0; 1 when no transport can do what --why asks; 2 for wrong usage.\n\n"
        "Examples:\n"
        "  plait info                                       everything, for people\n"
        "  plait info --json                                the same, for programs\n"
        "  plait info --why ranks=4                         which transport four ranks would use\n"
        "  plait info --why ranks=16 hosts=2 launcher=mpirun\n"
        "  plait run -n 2 -p plait info --why               what each rank itself would say"};

int explain(const Problem& problem, bool json) {
  const Walk walk = walk_transports(problem);
  fmt::print("{}", json ? show_json(problem, walk).dump(2) + "\n" : show_text(problem, walk));
  return walk.chosen.empty() ? kCheckFailed : kDone;
}

}  // namespace

int info(Words words) {
  bool json = false;
  bool why = false;
  Options options(kAbout);
  options.add_flag("--json", json, "print JSON");
  options.add_flag("--why", why,
                   "explain the choice of a transport for a PROBLEM: ranks=N, hosts=N,\n"
                   "launcher=run|torchrun|mpirun|srun and transport=NAME, in any order;\n"
                   "what is not said comes from the environment");
  std::vector<std::string> flags;
  std::vector<std::string> problem_words;
  for (const std::string& word : words)
    (word.starts_with("-") ? flags : problem_words).push_back(word);
  PLAIT_CHECK(options.leading(flags) == flags.size(), "unexpected -- (plait info --help)");
  if (!options.parse(flags)) return kDone;
  if (why) return explain(parse_problem(problem_words), json);
  PLAIT_CHECK(problem_words.empty(), "unexpected word ", problem_words[0], " (plait info --help)");
  const Findings findings = find_out();
  fmt::print("{}", json ? show_json(findings).dump(2) + "\n" : show_text(findings));
  return kDone;
}

}  // namespace plait::cli
