// plait trace: draws a timeline of an operator, as a page and for Perfetto.
#include <string>
#include <vector>

#include "base/check.h"
#include "base/nearest.h"
#include "cli/bench/measurements.h"
#include "cli/help_page.h"
#include "cli/verbs.h"
#include "plait/operator.h"

namespace plait::cli {
namespace {

HelpPage overview() {
  HelpPage page = {
      .name = "trace",
      .usage = "trace OPERATOR --m M --n N --k K [OPTIONS]",
      .purpose =
          "Draws a timeline of an operator: the work of every rank in the serial plan and, below "
          "it\n"
          "on the same axis, in the other plans.",
      .lists = {{.title = "Operators", .entries = {}}},
      .options = {{.names = {"-h", "--help"},
                   .purpose = "print this page; after OPERATOR, its options"}},
      .examples =
          "Exit status: 0 done; 1 when results differ or a file can't be written; 2 wrong usage;\n"
          "3 a rank was lost.\n\n"
          "Examples:\n"
          "  plait trace matmul-all-reduce --m 1024 --n 4096 --k 4096 --link ratio=1\n"};
  for (const std::string& word : measured_words()) page.subpages.push_back({word});
  page.lists[0].entries = page.subpages;
  return page;
}

}  // namespace

int trace(Words words) {
  PLAIT_CHECK(!words.empty(),
              "an operator is missing, such as matmul-all-reduce (plait trace --help)");
  const std::string& first = words[0];
  if (asks_for_help(words)) return show_overview(overview(), words), kDone;
  const std::vector<std::string> known = measured_words();
  const auto op = find_measured(first);
  PLAIT_CHECK(op && (op->exchange || traits_of(op->op).communicates()), "cannot trace ", first,
              base::did_you_mean(first, known), " (plait trace --help)");
  return measure_operator("trace", first, words.subspan(1));
}

}  // namespace plait::cli
