// plait bench: measures costs on this machine, next to the best that the machine could reach.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/nearest.h"
#include "cli/bench/measurements.h"
#include "cli/help_page.h"
#include "cli/verbs.h"

namespace plait::cli {
namespace {

struct Measurement {
  const char* name;  // operators as in C++, with hyphens
  const char* summary;
  int (*run)(Words) = nullptr;  // null: an operator, by measure_operator()
};

constexpr std::array<Measurement, 16> kMeasurements = {{
    {"matmul", "a matrix product, without communication", bench_matmul},
    {"grouped", "products of the experts of a layer, without communication", bench_grouped},
    {"experts", "a layer of experts, whose rows go to other ranks and back", bench_experts},
    {"matmul-all-reduce", "a product whose sum over ranks goes to every rank"},
    {"matmul-reduce-scatter", "a product whose sum over ranks is sharded"},
    {"matmul-all-gather", "a product of row shards, whose result goes to every rank"},
    {"all-gather-matmul", "a product of rows gathered from all ranks"},
    {"reduce-scatter-matmul", "a product of rows summed over ranks and sharded"},
    {"all-reduce-matmul", "a product of rows summed over ranks"},
    {"matmul-all-to-all", "a product of own rows, whose columns go to the ranks of their heads"},
    {"all-to-all-matmul", "a product of own rows, gathered from the ranks of their heads"},
    {"matmul-all-gather-columns", "a product by own columns, which go to every rank"},
    {"all-gather-columns-matmul", "a product of columns gathered from all ranks"},
    {"heads", "what follows a product by ranks' shares of a vocabulary", bench_heads},
    {"layer", "a linear layer, forward and backward", bench_layer},
    {"model", "the linear layers of a model's blocks, forward and backward", bench_model},
}};

HelpPage overview() {
  HelpPage page = {
      .name = "bench",
      .usage = "bench WHAT [OPTIONS]",
      .purpose =
          "Measures an operation on this machine, and the best that the machine could reach.",
      .lists = {{.title = "WHAT", .entries = {}}},
      .options = {{.names = {"-h", "--help"},
                   .purpose = "print this page; after WHAT, its options"}},
      .examples =
          "Exit status: 0 done; 1 when results differ or a file can't be written; 2 wrong usage;\n"
          "3 a rank was lost.\n\n"
          "Examples:\n"
          "  plait bench matmul-all-reduce --m 2048 --n 8192 --k 8192 --link ratio=1\n"
          "  plait bench model llama2-70b --link share=0.12\n"
          "  plait bench matmul --m 1,16,512 --n 4096 --k 4096\n"
          "  plait bench matmul --help\n"};
  for (const Measurement& one : kMeasurements) page.subpages.push_back({one.name, one.summary});
  page.lists[0].entries = page.subpages;
  return page;
}

}  // namespace

int bench(Words words) {
  PLAIT_CHECK(!words.empty(), "WHAT is missing, such as matmul (plait bench --help)");
  const std::string& first = words[0];
  if (asks_for_help(words)) return show_overview(overview(), words), kDone;
  std::vector<std::string> names;
  for (const Measurement& one : kMeasurements) {
    if (first == one.name && one.run != nullptr) return one.run(words.subspan(1));
    names.emplace_back(one.name);
  }
  if (find_measured(first)) return measure_operator("bench", first, words.subspan(1));
  base::fail(Code::invalid_argument, "cannot measure ", first, base::did_you_mean(first, names),
             " (plait bench --help)");
}

}  // namespace plait::cli
