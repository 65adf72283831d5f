// plait info: shows what plait finds here, and what it would choose.
#include <string>
#include <vector>

#include "base/check.h"
#include "cli/console.h"
#include "cli/info/records.h"
#include "cli/info/walk.h"
#include "cli/info/why_plan.h"
#include "cli/options.h"
#include "cli/verbs.h"

namespace plait::cli {
namespace {

constexpr Options::About kAbout = {
    .verb = "info",
    .usage = "[--json] [--settings | --meet | --why [PROBLEM...]]",
    .purpose =
        "Shows what plait finds here: the processor and its features, memory and its pages, the\n"
        "limits of this container, the rank's place in its launcher's world, plait's variables\n"
        "that are set, and the transports, backends and GPUs, with the reason if one can't be\n"
        "used.",
    .examples =
        "Exit status: 0 done; 1 when nothing supports the --why problem, or PLAIT_CONFIG can't be\n"
        "read; 2 wrong usage.\n\n"
        "Examples:\n"
        "  plait info                                       show everything as text\n"
        "  plait info --json                                the same as JSON\n"
        "  PLAIT_CONFIG=plait.toml plait info --settings    settings and their origins\n"
        "  plait info --why ranks=4                         the transport of four ranks\n"
        "  plait info --why ranks=16 hosts=2 launcher=mpirun\n"
        "  plait info --why \"m=8 n=4096 k=4096 x=bf16 w=bf16 out=bf16\"\n"
        "  plait info --why \"op=matmul-all-reduce m=2048 n=8192 k=8192 link=25gbit,5us\"\n"
        "  plait run -n 2 -p plait info --why               the answer of each rank\n"
        "  plait run --hosts node1:2,node2:2 -p -- plait info --meet   how ranks reach each other"};

int tell(const Json& record, const std::string& text, bool json) {
  answer(json ? record.dump(2) + "\n" : text);
  return kDone;
}

int explain(const std::vector<std::string>& typed, bool json) {
  // Checked before commas separate words, because a link contains one.
  if (const Json explained = explain_one_plan(typed); !explained.is_null())
    return tell(explained, show_one_plan(explained), json);
  if (is_plan_problem(typed)) {
    const PlanChoice choice = choose_plan(typed);
    return tell(show_json(choice), show_text(choice), json);
  }
  const std::vector<std::string> words = words_of_problem(typed);
  const bool product = is_product(words);
  const Json explained = product ? explain_product(words) : explain_transport(words);
  tell(explained, product ? show_product(explained) : show_transport(explained), json);
  return explained["chosen"].is_null() ? kCheckFailed : kDone;
}

}  // namespace

int info(Words words) {
  bool json = false;
  bool settings = false;
  bool why = false;
  bool meet = false;
  Options options(kAbout);
  options.add_flag("--json", json, "print JSON");
  options.add_flag("--settings", settings,
                   "show every setting, its value, and its origin: the file that\n"
                   "PLAIT_CONFIG names, a variable, or the default; names variables that\n"
                   "plait does not read, and refuses bad values");
  options.add_flag("--why", why,
                   "explain the choice of a transport for a PROBLEM: ranks=N, hosts=N,\n"
                   "launcher=run|torchrun|mpirun|srun and transport=NAME, in any order;\n"
                   "missing ones come from the environment. With m=M n=N k=K: the choice\n"
                   "of a backend for a product; x=, w=, out= (default: bf16) and\n"
                   "backend=NAME are optional. With op=NAME m=M n=N k=K: the choice of a\n"
                   "plan for an operator; x=, w=, out=, wire=, ranks=, hosts=, threads=,\n"
                   "backend=, transport=, link= and columns= (the most that a rank has)\n"
                   "are optional. Of experts, columns= is their number, and required");
  options.add_flag("--meet", meet,
                   "connect to the other ranks that a launcher has started, and show the\n"
                   "hosts, the ranks of each, and how chunks travel to each rank");
  std::vector<std::string> flags;
  std::vector<std::string> problem_words;
  for (const std::string& word : words)
    (word.starts_with("-") ? flags : problem_words).push_back(word);
  PLAIT_CHECK(options.leading(flags) == flags.size(), "unexpected -- (plait info --help)");
  if (!options.parse(flags)) return kDone;
  PLAIT_CHECK(settings + why + meet <= 1, "--settings, --meet and --why cannot be combined");
  if (why) return explain(problem_words, json);
  PLAIT_CHECK(problem_words.empty(), "unexpected word ", problem_words[0], " (plait info --help)");
  if (meet) {
    const Json meeting = meet_ranks();
    return tell(meeting, show_meeting(meeting), json);
  }
  if (settings) {
    const Json found = find_settings();
    return tell(found, show_settings(found), json);
  }
  const Json findings = find_out();
  return tell(findings, show_findings(findings), json);
}

}  // namespace plait::cli
