#include "cli/bench/matmul.h"

#include "base/check.h"
#include "base/parallel.h"
#include "cli/effort_options.h"
#include "cli/options.h"
#include "cli/problem_options.h"
#include "cli/values.h"

namespace plait::cli {
namespace {

constexpr Options::About kAbout = {
    .verb = "bench matmul",
    .usage = "--m M[,M...] --n N --k K [OPTIONS]",
    .purpose =
        "Measures y = x·w on this machine. x has m rows of k numbers; w has n outputs.\n\n"
        "Prints the time of a call and its share of the processor's peak. For few rows, it also\n"
        "prints how fast the weight was read, and how fast this machine reads as many bytes. The\n"
        "rows of the table, a loop of multiply-adds and a loop of reads take turns. A repetition\n"
        "is a run of back-to-back calls.",
    .examples =
        "Exit status: 0 done; 1 a file can't be written; 2 wrong usage.\n\n"
        "Examples:\n"
        "  plait bench matmul --m 1,16,64,512 --n 4096 --k 4096\n"
        "  plait bench matmul --m 512 --n 4096 --k 4096 --dtype f32 --backend all --threads 1\n"
        "  plait bench matmul --m 1,512 --n 4096 --k 4096 --weight bf16,s8:channel,s4:group=64\n"
        "  plait bench matmul --m 2048 --n 4096 --k 4096 --columns 256 --json -"};

std::vector<std::string> read_weights(std::string_view option, const std::string& text) {
  std::vector<std::string> weights = read_list(option, text);
  for (const std::string& weight : weights) {
    PLAIT_CHECK(weight.find(' ') == std::string::npos, option, " ", weight,
                " is not a kind of weight: it contains a space");
  }
  return weights;
}

void add_options(Options& options, MatmulOptions& matmul) {
  options.add("--m|-m", sizes("M[,M...]"), matmul.m,
              "rows of x; several values are measured one by one");
  options.add("--n|-n", size("N"), matmul.n, "columns of the result");
  options.add("--k|-k", size("K"), matmul.k, "columns of x: the terms of each sum");
  options.add("-w,--weight", "KIND[,KIND...]", matmul.weights, read_weights,
              "a dtype, or a scheme such as s8:channel, s8:group=128 or\n"
              "s4:group=64, packed before the call; plain: x's dtype, not packed\n"
              "before (default: x's dtype, packed)");
  options.add("--layout|-l", kLayout, matmul.layout,
              "layout of the weight: out_in (default) or in_out");
  options.add("--threads|-t", kThreads, matmul.threads, "number of threads (default: OpenMP's)");
  options.add("-b,--backend", "NAME[,...]|all", matmul.backends, read_list,
              "backends, as plait info lists them (default: the best); all: every\n"
              "backend that supports the product, except the reference, which takes\n"
              "seconds per call");
  options.add("--columns|-c", size("W"), matmul.columns,
              "run the product in windows of W columns, each into a buffer of its\n"
              "own, as operators that send finished columns do");
  options.add_flag("--accumulate", matmul.accumulate, "add to the values in the result's buffer");
  options.add_flag("--transposed-x", matmul.transposed_x,
                   "store x as [k, m], as for a weight's gradient");
}

}  // namespace

std::optional<MatmulOptions> read_matmul_options(Words words) {
  MatmulOptions matmul;
  matmul.threads = base::thread_count(0);
  matmul.backends = {""};
  matmul.words.assign(words.begin(), words.end());
  DtypeOptions dtypes;
  Options options(kAbout);
  add_options(options, dtypes);
  add_options(options, matmul);
  add_options(options, matmul.effort, "1");
  add_json_option(options, matmul.files);
  if (!options.parse_all(words)) return std::nullopt;
  for (const char* size : {"--m", "--n", "--k"})
    PLAIT_CHECK(!options.typed(size).empty(), size, " is missing (plait bench matmul --help)");
  PLAIT_CHECK(matmul.columns <= matmul.n, "--columns ", matmul.columns,
              " is not a whole number from 1 to ", matmul.n);
  matmul.x = dtypes.x;
  matmul.out = dtypes.result();
  if (matmul.weights.empty()) matmul.weights = {std::string(name(matmul.x))};
  return matmul;
}

}  // namespace plait::cli
