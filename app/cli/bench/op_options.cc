#include "cli/bench/op_options.h"

#include "base/check.h"
#include "base/text.h"
#include "cli/as_ranks.h"
#include "cli/bench/timelines.h"
#include "cli/effort_options.h"
#include "cli/options.h"
#include "cli/problem_options.h"
#include "cli/values.h"
#include "ops/op_checks.h"
#include "plait/gemm.h"
#include "plait/quantized.h"

namespace plait::cli {
namespace {

constexpr double kLargestRatio = 1000;

constexpr const char* kPurpose =
    "Measures an operator in every schedule, and its product and its collective alone.\n\n"
    "The command starts the ranks, unless a launcher (plait run, torchrun, mpirun) has started\n"
    "it as a rank. Ideal is the longer of product and collective. Bound is a lower limit if one\n"
    "processor does both: the product plus the collective's copies and sums, or the collective\n"
    "over the link, whichever is longer. Efficiency is the share of the hideable time that was\n"
    "hidden: 1 is the ideal, and more is noise.";

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

constexpr const char* kExchangeExamples =
    "Exit status: 0 done; 1 a result's bits differ or a file can't be written; 2 wrong usage;\n"
    "3 a rank was lost.\n\n"
    "Examples:\n"
    "  plait bench matmul-all-to-all --m 1024 --n 6144 --k 4096 --heads 32,8 --link ratio=1\n"
    "  plait trace all-to-all-matmul --m 1024 --n 4096 --k 4096 --heads 32 --link ratio=1\n"
    "  plait bench matmul-all-gather-columns --m 512 --n 32000 --k 4096 --link ratio=1\n";

// The default parts of pipelined plans. A page with many plans is hard to read.
const char* usual_parts(OpVerb verb) { return verb == OpVerb::trace ? "4" : "2,4,8"; }

const char* usual_seconds(OpVerb verb) { return verb == OpVerb::trace ? "0.3" : "1"; }

measure::RequestedLink read_link(std::string_view option, const std::string& text) {
  constexpr std::string_view kRatio = "ratio=";
  if (text.empty()) return {};
  PLAIT_CHECK(!text.starts_with("share="), option, " ", text,
              ": share= applies to training steps; operators take ratio=, as in ratio=1");
  if (!text.starts_with(kRatio)) return {.link = parse_link(text)};
  const auto ratio = base::parse_number(std::string_view(text).substr(kRatio.size()));
  PLAIT_CHECK(ratio && *ratio > 0 && *ratio <= kLargestRatio, option, " ", text,
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

// The options whose values need no others to be understood.
void add_options(Options& options, OpBenchOptions& bench) {
  if (bench.exchange) {
    if (bench.exchange->family == Family::ulysses) add_heads_option(options, *bench.exchange);
  } else {
    options.add("--wire", wire_of(bench.op), bench.wire,
                "dtype in which partial sums are sent (default: f32 on one host, x's\n"
                "dtype between hosts, as layers send them)");
  }
  options.add("-w,--weight", kWeight, bench.weight,
              "a dtype, or a scheme such as s8:channel, packed before the call;\n"
              "plain: x's dtype, not packed before (default: x's dtype, packed)");
  options.add("--layout", kLayout, bench.layout,
              "layout of the weight: out_in (default) or in_out");
  options.add("-l,--link", "LINK", bench.link, read_link,
              "emulated link between all ranks, such as 25gbit,5us; ratio=1: a\n"
              "link over which the collective takes as long as the product");
  options.add_flag("--timed-product", bench.waits,
                   "for more ranks than cores: in place of multiplying, ranks wait as\n"
                   "long as their product takes while the other ranks are idle");
  options.add("-b,--backend", kBackend, bench.backend,
              "backend of the product; see plait info (default: the best)");
}

}  // namespace

std::optional<OpBenchOptions> read_op_options(OpVerb which, const MeasuredOperator& op,
                                              Words words) {
  const bool traces = which == OpVerb::trace;
  OpBenchOptions bench;
  bench.op = op.op;
  bench.exchange = op.exchange;
  const std::string verb = (traces ? "trace " : "bench ") + word_of(bench.name());
  bench.wire = kAutomaticWire;
  SizeOptions sizes;
  DtypeOptions dtypes;
  RankOptions ranks;
  PlanOptions plans;
  Options options({.verb = verb,
                   .usage = "--m M --n N --k K [OPTIONS]",
                   .purpose = traces ? kTracePurpose : kPurpose,
                   .examples = op.exchange ? kExchangeExamples
                               : traces    ? kTraceExamples
                                           : kExamples});
  add_options(options, sizes);
  add_options(options, dtypes);
  add_options(options, ranks);
  add_options(options, bench);
  add_options(options, plans, usual_parts(which));
  add_options(options, bench.effort, usual_seconds(which));
  add_options(options, bench.files);
  if (!options.parse_all(words)) return std::nullopt;
  bench.sizes = read_sizes(sizes);
  bench.x = dtypes.x;
  bench.out = dtypes.result();
  if (bench.weight.empty()) bench.weight = name(bench.x);
  bench.ranks = read_ranks("--ranks", ranks.ranks, ranks.transport);
  bench.transport = ranks.transport;
  bench.threads = ranks.threads;
  check_backend(bench);
  bench.plans = bench.exchange ? read_plans(*bench.exchange, plans, usual_parts(which))
                               : read_plans(bench.op, plans, usual_parts(which));
  for (const measure::OpSize& size : bench.sizes)
    if (bench.exchange) static_cast<void>(bench.exchange->columns(size, bench.ranks));
  if (traces) name_usual_files(bench.files);
  if (bench.files.traces()) check_single("size", bench.sizes.size());
  check_distinct(bench.files, {{"the shapes", sizes.shapes}});
  return bench;
}

}  // namespace plait::cli
