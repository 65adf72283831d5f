// plait info: what is here, what is missing, and what would be chosen.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "cli/info/findings.h"
#include "cli/info/settings.h"
#include "cli/info/show.h"
#include "cli/info/why.h"
#include "cli/info/why_plan.h"
#include "cli/info/why_product.h"
#include "cli/options.h"
#include "cli/speech.h"
#include "cli/verbs.h"

namespace plait::cli {
namespace {

constexpr Options::About kAbout = {
    .verb = "info",
    .usage = "[--json] [--settings | --why [PROBLEM...]]",
    .purpose =
        "Prints what plait finds here: the processor and what it can do, memory and its pages,\n"
        "the limits of this container, the rank's place in its launcher's world, which variables\n"
        "of plait's are set, and which transports and backends of products can be used, with the\n"
        "reason where one can't.",
    .examples =
        "Exit status: 0; 1 when nothing can do what --why asks, or PLAIT_CONFIG can't be read;\n"
        "2 for wrong usage.\n\n"
        "Examples:\n"
        "  plait info                                       everything, for people\n"
        "  plait info --json                                the same, for programs\n"
        "  PLAIT_CONFIG=plait.toml plait info --settings    what is set, and by whom\n"
        "  plait info --why ranks=4                         which transport four ranks would use\n"
        "  plait info --why ranks=16 hosts=2 launcher=mpirun\n"
        "  plait info --why \"m=8 n=4096 k=4096 x=bf16 w=bf16 out=bf16\"\n"
        "  plait info --why \"op=matmul-all-reduce m=2048 n=8192 k=8192 link=25gbit,5us\"\n"
        "  plait run -n 2 -p plait info --why               what each rank itself would say"};

template <class Found>
int tell(const Found& found, bool json) {
  answer(json ? show_json(found).dump(2) + "\n" : show_text(found));
  return kDone;
}

template <class Problem>
int explain(const Problem& problem, const Walk& walk, bool json) {
  answer(json ? show_json(problem, walk).dump(2) + "\n" : show_text(problem, walk));
  return walk.chosen().empty() ? kCheckFailed : kDone;
}

int explain(const std::vector<std::string>& typed, bool json) {
  // Before commas are taken for borders of words: a link has one.
  if (is_plan_problem(typed)) {
    const PlanChoice choice = choose_plan(typed);
    answer(json ? show_json(choice).dump(2) + "\n" : show_text(choice));
    return kDone;
  }
  const std::vector<std::string> words = words_of_problem(typed);
  if (is_product(words)) {
    const ProductProblem problem = parse_product(words);
    return explain(problem, walk_backends(problem), json);
  }
  const Problem problem = parse_problem(words);
  return explain(problem, walk_transports(problem), json);
}

}  // namespace

int info(Words words) {
  bool json = false;
  bool settings = false;
  bool why = false;
  Options options(kAbout);
  options.add_flag("--json", json, "print JSON");
  options.add_flag("--settings", settings,
                   "every setting, its value, and where it comes from: the file that\n"
                   "PLAIT_CONFIG names, a variable, or the default");
  options.add_flag("--why", why,
                   "explain the choice of a transport for a PROBLEM: ranks=N, hosts=N,\n"
                   "launcher=run|torchrun|mpirun|srun and transport=NAME, in any order;\n"
                   "what is not said comes from the environment. Or of the backend for\n"
                   "a product: m=M n=N k=K, and x=, w= and out= where they are not bf16,\n"
                   "and backend=NAME. Or of the plan of an operator: op=NAME m=M n=N\n"
                   "k=K, and x=, w=, out=, wire=, ranks=, threads=, backend=, transport=\n"
                   "and link=");
  std::vector<std::string> flags;
  std::vector<std::string> problem_words;
  for (const std::string& word : words)
    (word.starts_with("-") ? flags : problem_words).push_back(word);
  PLAIT_CHECK(options.leading(flags) == flags.size(), "unexpected -- (plait info --help)");
  if (!options.parse(flags)) return kDone;
  PLAIT_CHECK(!settings || !why, "--settings and --why ask for different things");
  if (why) return explain(problem_words, json);
  PLAIT_CHECK(problem_words.empty(), "unexpected word ", problem_words[0], " (plait info --help)");
  return settings ? tell(find_settings(), json) : tell(find_out(), json);
}

}  // namespace plait::cli
