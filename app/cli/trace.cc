// plait trace: draws a timeline of an operator, as a page and for Perfetto.
#include <array>
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

struct Layer {
  const char* name;
  const char* summary;
  int (*run)(Words);
};

// Layers that are no operators have options of their own.
constexpr std::array<Layer, 2> kLayers = {{
    {"experts", "a layer of experts, whose rows go to other ranks and back", trace_experts},
    {"heads", "what follows a product by ranks' shares of a vocabulary", trace_heads},
}};

HelpPage overview() {
  HelpPage page = {
      .name = "trace",
      .usage = "trace WHAT [OPTIONS]",
      .purpose =
          "Draws a timeline of an operator, or of a layer: the work of every rank in the serial\n"
          "plan and, below it on the same axis, in the other plans.",
      .lists = {{.title = "WHAT", .entries = {}}},
      .options = {{.names = {"-h", "--help"},
                   .purpose = "print this page; after WHAT, its options"}},
      .examples =
          "Exit status: 0 done; 1 when results differ or a file can't be written; 2 wrong usage;\n"
          "3 a rank was lost.\n\n"
          "Examples:\n"
          "  plait trace matmul-all-reduce --m 1024 --n 4096 --k 4096 --link ratio=1\n"
          "  plait trace heads --m 16 --n 151936 --k 2048\n"};
  for (const std::string& word : measured_words()) page.subpages.push_back({word});
  for (const Layer& layer : kLayers) page.subpages.push_back({layer.name, layer.summary});
  page.lists[0].entries = page.subpages;
  return page;
}

}  // namespace

int trace(Words words) {
  PLAIT_CHECK(!words.empty(),
              "an operator is missing, such as matmul-all-reduce (plait trace --help)");
  const std::string& first = words[0];
  if (asks_for_help(words)) return show_overview(overview(), words), kDone;
  std::vector<std::string> known = measured_words();
  for (const Layer& layer : kLayers) {
    if (first == layer.name) return layer.run(words.subspan(1));
    known.emplace_back(layer.name);
  }
  const auto op = find_measured(first);
  PLAIT_CHECK(op && (op->exchange || traits_of(op->op).communicates()), "cannot trace ", first,
              base::did_you_mean(first, known), " (plait trace --help)");
  return measure_operator("trace", first, words.subspan(1));
}

}  // namespace plait::cli
