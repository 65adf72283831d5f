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
        "Measures y = x·w on this machine: x is m rows of k numbers, w the weight of n outputs.\n\n"
        "Says the time of a call, what that is of the processor's peak, and for few rows how fast\n"
        "the weight was read, beside how fast this machine reads as many bytes. All take turns: "
        "the\n"
        "rows of the table, a loop of nothing but multiply-adds, and one of nothing but reading. "
        "A\n"
        "repetition is a run of back-to-back calls.",
    .examples =
        "Exit status: 0; 1 when a file can't be written; 2 for wrong usage.\n\n"
        "Examples:\n"
        "  plait bench matmul --m 1,16,64,512 --n 4096 --k 4096\n"
        "  plait bench matmul --m 512 --n 4096 --k 4096 --dtype f32 --backend all --threads 1\n"
        "  plait bench matmul --m 1,512 --n 4096 --k 4096 --weight bf16,s8:channel,s4:group=64\n"
        "  plait bench matmul --m 2048 --n 4096 --k 4096 --columns 256 --json -"};

// As typed.
struct Wishes {
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

void add_options(Options& options, Wishes& wishes) {
  options.add("-m,--m", "M[,M...]", wishes.m, "rows of x; each is measured");
  options.add("-n,--n", "N", wishes.n, "columns of the result");
  options.add("-k,--k", "K", wishes.k, "numbers that a sum is taken over");
  options.add("-d,--dtype", "DTYPE", wishes.x, "of x: f32, bf16 (the default) or f16");
  options.add("-o,--out", "DTYPE", wishes.out, "of the result (default: that of x)");
  options.add("-w,--weight", "KIND[,KIND...]", wishes.weight,
              "a dtype, or a scheme such as s8:channel, s8:group=128 or\n"
              "s4:group=64: packed before; plain: of x's dtype, and as it lies\n"
              "(default: x's dtype, packed)");
  options.add("-l,--layout", "LAYOUT", wishes.layout,
              "how the weight lies: out_in (the default) or in_out");
  options.add("-t,--threads", "T", wishes.threads,
              "how many threads multiply (default: as many as OpenMP would use)");
  options.add("-b,--backend", "NAME[,...]|all", wishes.backend,
              "who multiplies (default: the best that can); all: everybody who\n"
              "can, but for the reference, which takes seconds a call");
  options.add("-c,--columns", "W", wishes.columns,
              "run the product in windows of W columns, each into a place of its\n"
              "own, as operators do that send finished columns away");
  options.add_flag("--accumulate", wishes.accumulate, "add to what the result's place holds");
  options.add_flag("--transposed-x", wishes.transposed_x,
                   "x lies as [k, m], as for a weight's gradient");
  options.add("-r,--repeat", "N", wishes.repeat, "how many repetitions (default: by --seconds)");
  options.add("-s,--seconds", "S", wishes.seconds,
              "how long to measure each row of the table, if that is enough for\n"
              "five repetitions (default: 1)");
  options.add("--json", "FILE", wishes.json, "write the figures as JSON too; - : print only those");
}

std::int64_t read_size(const std::string& option, const std::string& text) {
  PLAIT_CHECK(!text.empty(), "which product? ", option, " is missing (plait bench matmul --help)");
  return read_number(option, text, 1, kLargestSize);
}

MatmulOptions understand(const Wishes& wishes) {
  MatmulOptions options;
  PLAIT_CHECK(!wishes.m.empty(), "which product? --m is missing (plait bench matmul --help)");
  for (const std::string& m : read_list("--m", wishes.m)) options.m.push_back(read_size("--m", m));
  options.n = read_size("--n", wishes.n);
  options.k = read_size("--k", wishes.k);
  options.x = read_dtype("--dtype", wishes.x);
  options.out = wishes.out.empty() ? options.x : read_dtype("--out", wishes.out);
  options.weights =
      read_list("--weight", wishes.weight.empty() ? std::string(name(options.x)) : wishes.weight);
  for (const std::string& weight : options.weights) {
    PLAIT_CHECK(weight.find(' ') == std::string::npos, "--weight ", weight,
                " is no kind of weight: there is a space in it");
  }
  options.layout = read_layout(wishes.layout);
  options.threads = wishes.threads.empty() ? base::thread_count(0) : read_threads(wishes.threads);
  if (wishes.backend.empty())
    options.backends = {""};
  else
    options.backends = read_list("--backend", wishes.backend);
  if (!wishes.columns.empty())
    options.columns = read_number("--columns", wishes.columns, 1, options.n);
  options.accumulate = wishes.accumulate;
  options.transposed_x = wishes.transposed_x;
  options.effort = read_effort(wishes.repeat, wishes.seconds);
  options.json = wishes.json;
  return options;
}

}  // namespace

std::optional<MatmulOptions> read_matmul_options(Words words) {
  Wishes wishes;
  Options options(kAbout);
  add_options(options, wishes);
  if (!options.parse_all(words)) return std::nullopt;
  MatmulOptions understood = understand(wishes);
  understood.words.assign(words.begin(), words.end());
  return understood;
}

}  // namespace plait::cli
