#include "cli/bench/matmul_options.h"

#include "base/check.h"
#include "base/parallel.h"
#include "cli/options.h"
#include "cli/values.h"

namespace plait::cli {
namespace {

constexpr Options::About kAbout = {
    .verb = "bench matmul",
    .usage = "--m M[,M...] --n N --k K [OPTIONS]",
    .purpose =
        "Measures y = x·w on this machine. x has m rows of k numbers; w has n outputs.\n\n"
        "Prints the time of a call and its share of the processor's peak. For few rows, it also "
        "prints\n"
        "how fast the weight was read, and how fast this machine reads as many bytes. The rows of "
        "the\n"
        "table, a loop of multiply-adds and a loop of reads take turns. A repetition is a run of\n"
        "back-to-back calls.",
    .examples =
        "Exit status: 0 done; 1 a file can't be written; 2 wrong usage.\n\n"
        "Examples:\n"
        "  plait bench matmul --m 1,16,64,512 --n 4096 --k 4096\n"
        "  plait bench matmul --m 512 --n 4096 --k 4096 --dtype f32 --backend all --threads 1\n"
        "  plait bench matmul --m 1,512 --n 4096 --k 4096 --weight bf16,s8:channel,s4:group=64\n"
        "  plait bench matmul --m 2048 --n 4096 --k 4096 --columns 256 --json -"};

// The arguments as typed.
struct Args {
  std::string m, n, k;
  std::string x = "bf16";
  std::string out;
  std::string weight;
  std::string layout = "out_in";
  std::string threads;
  std::string backend;
  std::string columns;
  std::string repeat;
  std::string seconds = "1";
  std::string json;
  bool accumulate = false;
  bool transposed_x = false;
};

void add_options(Options& options, Args& args) {
  options.add("-m,--m", "M[,M...]", args.m, "rows of x; several values are measured one by one");
  options.add("-n,--n", "N", args.n, "columns of the result");
  options.add("-k,--k", "K", args.k, "columns of x: the terms of each sum");
  options.add("-d,--dtype", "DTYPE", args.x, "dtype of x: f32, bf16 (default) or f16");
  options.add("-o,--out", "DTYPE", args.out, "dtype of the result (default: that of x)");
  options.add("-w,--weight", "KIND[,KIND...]", args.weight,
              "a dtype, or a scheme such as s8:channel, s8:group=128 or\n"
              "s4:group=64, packed before the call; plain: x's dtype, not packed\n"
              "before (default: x's dtype, packed)");
  options.add("-l,--layout", "LAYOUT", args.layout,
              "layout of the weight: out_in (default) or in_out");
  options.add("-t,--threads", "T", args.threads, "number of threads (default: OpenMP's)");
  options.add("-b,--backend", "NAME[,...]|all", args.backend,
              "backends, as plait info lists them (default: the best); all: every\n"
              "backend that can, except the reference, which takes seconds per call");
  options.add("-c,--columns", "W", args.columns,
              "run the product in windows of W columns, each into a buffer of its\n"
              "own, as operators do that send finished columns");
  options.add_flag("--accumulate", args.accumulate, "add to the values in the result's buffer");
  options.add_flag("--transposed-x", args.transposed_x,
                   "store x as [k, m], as for a weight's gradient");
  options.add("-r,--repeat", "N", args.repeat, "number of repetitions (default: set by --seconds)");
  options.add("-s,--seconds", "S", args.seconds,
              "time to measure each row of the table, for at least five\n"
              "repetitions (default: 1)");
  options.add("--json", "FILE", args.json, "also write the results as JSON; -: print only JSON");
}

std::int64_t read_size(const std::string& option, const std::string& text) {
  PLAIT_CHECK(!text.empty(), option, " is missing (plait bench matmul --help)");
  return read_number(option, text, 1, kLargestSize);
}

MatmulOptions understand(const Args& args) {
  MatmulOptions options;
  PLAIT_CHECK(!args.m.empty(), "--m is missing (plait bench matmul --help)");
  for (const std::string& m : read_list("--m", args.m)) options.m.push_back(read_size("--m", m));
  options.n = read_size("--n", args.n);
  options.k = read_size("--k", args.k);
  options.x = read_dtype("--dtype", args.x);
  options.out = args.out.empty() ? options.x : read_dtype("--out", args.out);
  options.weights =
      read_list("--weight", args.weight.empty() ? std::string(name(options.x)) : args.weight);
  for (const std::string& weight : options.weights) {
    PLAIT_CHECK(weight.find(' ') == std::string::npos, "--weight ", weight,
                " is not a kind of weight: it contains a space");
  }
  options.layout = read_layout(args.layout);
  options.threads = args.threads.empty() ? base::thread_count(0) : read_threads(args.threads);
  if (args.backend.empty())
    options.backends = {""};
  else
    options.backends = read_list("--backend", args.backend);
  if (!args.columns.empty()) options.columns = read_number("--columns", args.columns, 1, options.n);
  options.accumulate = args.accumulate;
  options.transposed_x = args.transposed_x;
  options.effort = read_effort(args.repeat, args.seconds);
  options.json = args.json;
  return options;
}

}  // namespace

std::optional<MatmulOptions> read_matmul_options(Words words) {
  Args args;
  Options options(kAbout);
  add_options(options, args);
  if (!options.parse_all(words)) return std::nullopt;
  MatmulOptions understood = understand(args);
  understood.words.assign(words.begin(), words.end());
  return understood;
}

}  // namespace plait::cli
