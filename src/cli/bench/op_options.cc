#include "cli/bench/op_options.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "cli/as_ranks.h"
#include "cli/op_sizes.h"
#include "cli/options.h"
#include "cli/values.h"
#include "plait/gemm.h"
#include "plait/quantized.h"

namespace plait::cli {
namespace {

constexpr double kLargestRatio = 1000;

constexpr const char* kPurpose =
    "Measures an operator in every schedule, and its product and its collective alone.\n\n"
    "The command starts the ranks, unless a launcher (plait run, torchrun, mpirun) has started\n"
    "it as a rank. Ideal is the longer of product and collective. Bound is what a processor that\n"
    "does both can't hide: the product and the collective's own work, or the link's time.\n"
    "Efficiency is the share of what could be hidden that was hidden: 1 is the ideal.";

constexpr const char* kExamples =
    "Exit status: 0 done; 1 a result's bits differ or a file can't be written; 2 wrong usage;\n"
    "3 a rank was lost.\n\n"
    "Examples:\n"
    "  plait bench matmul-all-reduce --m 2048 --n 8192 --k 8192 --link ratio=1\n"
    "  plait bench all-gather-matmul --m 1024,2048 --n 8192 --k 4096 --link 25gbit,5us\n"
    "  plait bench matmul-reduce-scatter --shapes shapes.txt --parts 2,4,8 --json -\n"
    "  plait bench matmul-all-reduce --m 512 --n 4096 --k 4096 --plan \"fused chunk=128\"\n";

constexpr const char* kTracePurpose =
    "Draws a timeline of an operator: the work of every rank in the serial plan and, below it on\n"
    "the same axis, in the other plans. Writes it as a page for a browser (plait-trace.html) and\n"
    "for Perfetto (plait-trace.json), or only the files named by --html, --svg and --trace.\n"
    "Measures first, like plait bench, but for a shorter time.";

constexpr const char* kTraceExamples =
    "Exit status: 0 done; 1 a result's bits differ or a file can't be written; 2 wrong usage;\n"
    "3 a rank was lost.\n\n"
    "Examples:\n"
    "  plait trace matmul-all-reduce --m 1024 --n 4096 --k 4096 --link ratio=1\n"
    "  plait trace all-gather-matmul --m 1024 --n 4096 --k 4096 --html page.html\n"
    "  plait trace matmul-all-reduce --m 256 --n 4096 --k 4096 --link 1gbit --svg picture.svg\n";

// The arguments as typed.
struct Args {
  SizeWords size = {};
  std::string x = "bf16";
  std::string out = {};
  std::string wire = {};
  std::string weight = {};
  std::string layout = "out_in";
  std::string ranks = {};
  std::string transport = {};
  std::string link = {};
  bool waits = false;
  std::string threads = {};
  std::string backend = {};
  PlanWords plan = {};
  std::string repeat = {};
  std::string seconds = {};
  OutputFiles files = {};
};

// The default parts of pipelined plans. A page with many plans is hard to read.
const char* usual_parts(OpVerb verb) { return verb == OpVerb::trace ? "4" : "2,4,8"; }

const char* usual_seconds(OpVerb verb) { return verb == OpVerb::trace ? "0.3" : "1"; }

void add_options(Options& options, Args& args, OpVerb verb) {
  add_options(options, args.size);
  options.add("-d,--dtype", "DTYPE", args.x, "dtype of x: f32, bf16 (default) or f16");
  options.add("-o,--out", "DTYPE", args.out, "dtype of the result (default: that of x)");
  options.add("--wire", "DTYPE", args.wire, "dtype in which partial sums are sent (default: f32)");
  options.add("-w,--weight", "KIND", args.weight,
              "a dtype, or a scheme such as s8:channel, packed before the call;\n"
              "plain: x's dtype, not packed before (default: x's dtype, packed)");
  options.add("--layout", "LAYOUT", args.layout,
              "layout of the weight: out_in (default) or in_out");
  options.add("--ranks", "N", args.ranks, "number of ranks (default: the launcher's, or 2)");
  options.add("-t,--transport", "NAME", args.transport,
              "shm (default), threads or mpi; see plait info");
  options.add("-l,--link", "LINK", args.link,
              "emulated link between all ranks, such as 25gbit,5us; ratio=1: a\n"
              "link over which the collective takes as long as the product");
  options.add_flag("--timed-product", args.waits,
                   "for more ranks than cores: in place of multiplying, ranks wait as\n"
                   "long as their product takes while the other ranks are idle");
  options.add("--threads", "T", args.threads,
              "threads of each rank (default: its share of the cores)");
  options.add("-b,--backend", "NAME", args.backend,
              "backend of the product; see plait info (default: the best)");
  add_options(options, args.plan, usual_parts(verb));
  options.add("-r,--repeat", "N", args.repeat, "number of repetitions (default: set by --seconds)");
  options.add("-s,--seconds", "S", args.seconds,
              std::string("time to measure each row of the table, for at least five\n"
                          "repetitions (default: ") +
                  usual_seconds(verb) + ")");
  add_options(options, args.files);
}

measure::RequestedLink read_link(const std::string& text) {
  constexpr std::string_view kRatio = "ratio=";
  if (text.empty()) return {};
  PLAIT_CHECK(!text.starts_with("share="), "--link ", text,
              ": share= applies to training steps; operators take ratio=, as in ratio=1");
  if (!text.starts_with(kRatio)) return {.link = parse_link(text)};
  const auto ratio = base::parse_number(std::string_view(text).substr(kRatio.size()));
  PLAIT_CHECK(ratio && *ratio > 0 && *ratio <= kLargestRatio, "--link ", text,
              ": the ratio must be a number above 0 and up to ", kLargestRatio);
  return {.ratio = *ratio};
}

// Checked once for the whole problem, so that not every rank reports it for its share.
void check_backend(const OpBenchOptions& options) {
  if (options.backend.empty()) return;
  for (const measure::OpSize& size : options.sizes) {
    select_gemm({.m = size.m,
                 .n = size.n,
                 .k = size.k,
                 .x = options.x,
                 .weight = parse_dtype(options.weight).value_or(options.x),
                 .out = options.out,
                 .quant = parse_quant_scheme(options.weight)},
                {.backend = options.backend});
  }
}

OpBenchOptions understand(OpVerb verb, Operator op, const Args& args) {
  OpBenchOptions options;
  options.op = op;
  options.sizes = read_sizes(args.size);
  options.x = read_dtype("--dtype", args.x);
  options.out = args.out.empty() ? options.x : read_dtype("--out", args.out);
  options.wire = read_wire(op, args.wire);
  options.weight = args.weight.empty() ? std::string(name(options.x)) : args.weight;
  check_weight_kind(options.weight);
  options.layout = read_layout(args.layout);
  options.transport = args.transport;
  options.ranks = read_ranks("--ranks", args.ranks, args.transport);
  options.link = read_link(args.link);
  options.waits = args.waits;
  if (!args.threads.empty()) options.threads = read_threads(args.threads);
  options.backend = read_backend(args.backend);
  check_backend(options);
  options.plans = read_plans(op, args.plan, usual_parts(verb));
  options.effort = read_effort(args.repeat, args.seconds);
  options.files = args.files;
  PLAIT_CHECK(options.sizes.size() == 1 || !options.files.traces(),
              "a timeline needs exactly one size, not ", options.sizes.size());
  check_distinct(options.files, {{"the shapes", args.size.shapes}});
  return options;
}

}  // namespace

std::optional<OpBenchOptions> read_op_options(OpVerb which, Operator op, Words words) {
  const bool traces = which == OpVerb::trace;
  std::string verb(traces ? "trace " : "bench ");
  verb += name(op);
  std::replace(verb.begin(), verb.end(), '_', '-');
  Args args = {.seconds = usual_seconds(which)};
  Options options({.verb = verb,
                   .usage = "--m M --n N --k K [OPTIONS]",
                   .purpose = traces ? kTracePurpose : kPurpose,
                   .examples = traces ? kTraceExamples : kExamples});
  add_options(options, args, which);
  if (!options.parse_all(words)) return std::nullopt;
  if (traces && !args.files.traces()) {
    args.files.trace = "plait-trace.json";
    args.files.html = "plait-trace.html";
  }
  return understand(which, op, args);
}

}  // namespace plait::cli
