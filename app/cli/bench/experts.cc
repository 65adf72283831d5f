// plait bench experts: measures what a layer of experts gains by hiding its exchange.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/check.h"
#include "base/parallel.h"
#include "base/processor.h"
#include "base/text.h"
#include "cli/as_ranks.h"
#include "cli/bench/experts_words.h"
#include "cli/bench/measurements.h"
#include "cli/bench/op_options.h"
#include "cli/bench/timelines.h"
#include "cli/console.h"
#include "cli/effort_options.h"
#include "cli/json.h"
#include "cli/options.h"
#include "cli/output_files.h"
#include "cli/table.h"
#include "cli/values.h"
#include "measure/collective_check.h"
#include "measure/experts_case.h"
#include "plait/version.h"

namespace plait::cli {
namespace {

constexpr Options::About kAboutExperts = {
    .verb = "bench experts",
    .usage = "[OPTIONS]",
    .purpose =
        "Measures the layer of experts of a model, whose rows go to other ranks and back: serial,\n"
        "fused, and what neither can go below. That is the longer of two: compute, the time of "
        "the\n"
        "rank that has most rows, and exchange, the time in which the rows travel there and back.\n"
        "Efficiency is the share of what could be hidden that was hidden:\n"
        "(serial - fused) / (serial - the longer one). In shared memory without an emulated link\n"
        "there is none, since the exchange is work of the same processors.\n"
        "Weights are packed, and results have x's dtype. All results of both schedules are\n"
        "compared bit by bit. Reading is the time in which a rank reads, from memory of its own,\n"
        "as many bytes as its experts with rows have: few rows take little longer.",
    .examples =
        "Exit status: 0 done; 1 results differ or a file can't be written; 2 wrong usage; 3 a "
        "rank\n"
        "was lost.\n\n"
        "Examples:\n"
        "  plait bench experts\n"
        "  plait bench experts --model qwen3-30b-a3b --skew 4:1 --ratio 1\n"
        "  plait bench experts --replicated --tokens 1,4,16\n"};

constexpr Options::About kAboutTrace = {
    .verb = "trace experts",
    .usage = "[OPTIONS]",
    .purpose =
        "Draws a timeline of the layer of experts of a model: the work of every rank in the\n"
        "serial schedule and, below it on the same axis, in the fused one. Writes it as a page\n"
        "for a browser (plait-trace.html) and for Perfetto (plait-trace.json), or only the files\n"
        "named by --html, --svg and --trace. Measures first, like plait bench experts, but for a\n"
        "shorter time.",
    .examples =
        "Exit status: 0 done; 1 results differ or a file can't be written; 2 wrong usage;\n"
        "3 a rank was lost.\n\n"
        "Examples:\n"
        "  plait trace experts\n"
        "  plait trace experts --skew 4:1 --ratio 0.5 --svg picture.svg\n"
        "  plait trace experts --replicated --tokens 4"};

struct ExpertsBench : measure::ExpertsSetup {
  RankOptions where;
  OutputFiles files;
};

std::vector<double> read_ratios(std::string_view option, const std::string& text) {
  std::vector<double> ratios;
  for (const std::string& word : read_list(option, text)) {
    const auto ratio = base::parse_number(word);
    PLAIT_CHECK(ratio && *ratio >= 0 && *ratio <= 1000, option, " ", word,
                " is not between 0 and 1000");
    ratios.push_back(*ratio);
  }
  return ratios;
}

bool has_link(const std::vector<double>& ratios) {
  return std::any_of(ratios.begin(), ratios.end(), [](double ratio) { return ratio > 0; });
}

std::optional<ExpertsBench> read_experts_options(OpVerb verb, Words words) {
  const bool traces = verb == OpVerb::trace;
  ExpertsBench bench;
  bench.models = traces ? read_experts("--model", "gpt-oss-quarter") : measure::experts_models();
  bench.tokens = {512};
  bench.skews = traces ? std::vector<std::string>{"balanced"} : measure::experts_skews();
  Options options(traces ? kAboutTrace : kAboutExperts);
  add_options(options, bench.where);
  options.add("--model", "NAME[,...]", bench.models, read_experts,
              std::string("qwen3-30b-a3b, deepseek-v2-lite, gpt-oss-quarter (its width divided "
                          "by\nfour; default: ") +
                  (traces ? "this one)" : "all)"));
  options.offer(experts_words());
  options.add("--tokens", sizes("T[,T...]"), bench.tokens, "tokens of each rank (default: 512)");
  options.add(
      "--skew", "SKEW[,...]", bench.skews, read_experts_skews,
      std::string("balanced: experts are drawn alike; gini=0.15, gini=0.3: with weights of\n"
                  "that Gini coefficient; 4:1: rank 0's with four times the weight of\n"
                  "others (default: ") +
          (traces ? "balanced)" : "all)"));
  options.offer(measure::experts_skews());
  options.add("--ratio", "R[,R...]", bench.ratios, read_ratios,
              std::string("exchange by compute, over an emulated link of that speed; 0: no link\n"
                          "(default: ") +
                  (traces ? "1" : "0,0.5,1,2") + "; of one rank, and with --replicated, 0)");
  options.add_flag("--replicated", bench.replicated,
                   "all ranks have the same tokens, as in decoding: results alone travel");
  options.add("--dtype|-d", kDtype, bench.x, "dtype of all (default: bf16)");
  add_options(options, bench.effort, traces ? "0.3" : "1");
  if (traces) {
    add_options(options, bench.files);
  } else {
    add_json_option(options, bench.files);
  }
  if (!options.parse_all(words)) return std::nullopt;
  if (traces) {
    name_usual_files(bench.files);
    check_single("model", bench.models.size());
    check_single("number of tokens", bench.tokens.size());
    check_single("skew", bench.skews.size());
    if (!bench.ratios.empty()) check_single("ratio", bench.ratios.size());
  }
  check_distinct(bench.files);
  PLAIT_CHECK(!bench.replicated || !has_link(bench.ratios),
              "--ratio is of rows that travel, and with --replicated none do; it can be 0");
  bench.threads = bench.where.threads;
  return bench;
}

std::string show_ratio(const measure::ExpertsMeasurement& one, double ratio) {
  return one.exchange.median > 0 ? fmt::format("{:.2f}", ratio) : "-";
}

std::string show_experts(const std::vector<measure::ExpertsMeasurement>& results) {
  Table table({"model", "tokens", "skew", "most/mean", "exch/comp", "compute", "exchange",
               "reading", "serial", "fused", "speed-up", "efficiency"},
              /*left=*/1);
  for (const measure::ExpertsMeasurement& one : results) {
    const auto efficiency = one.efficiency();
    table.add(
        {one.model, fmt::to_string(one.tokens), one.skew, fmt::format("{:.2f}", one.most),
         show_ratio(one, one.exchange.median / one.compute.median), show_time(one.compute.median),
         one.exchange.median > 0 ? show_time(one.exchange.median) : "-",
         show_time(one.reading.median), show_time(one.serial.median), show_time(one.fused.median),
         fmt::format("{:.2f}", one.serial.median / one.fused.median),
         efficiency ? fmt::format("{:.2f}", *efficiency) : "-"});
  }
  return table.text();
}

nlohmann::ordered_json show_experts_json(const ExpertsBench& bench, const Communicator& comm,
                                         Words words,
                                         const std::vector<measure::ExpertsMeasurement>& results) {
  Json list = Json::array();
  for (const measure::ExpertsMeasurement& one : results) {
    const auto efficiency = one.efficiency();
    list.push_back({{"model", one.model},
                    {"tokens", one.tokens},
                    {"skew", one.skew},
                    {"most_by_mean", one.most},
                    {"link", one.link ? Json(name(*one.link)) : Json()},
                    {"weight_bytes", one.weight_bytes},
                    {"compute_ns", one.compute.median},
                    {"exchange_ns", one.exchange.median},
                    {"reading_ns", one.reading.median},
                    {"serial_ns", one.serial.median},
                    {"fused_ns", one.fused.median},
                    {"efficiency", efficiency ? Json(*efficiency) : Json()},
                    {"bits_equal", one.bits_equal},
                    {"repetitions", one.serial.repetitions}});
  }
  return {{"plait", kVersion},
          {"words", std::vector<std::string>(words.begin(), words.end())},
          {"processor", base::read_processor().model},
          {"ranks", comm.world()},
          {"transport", comm.transport()},
          {"replicated", bench.replicated},
          {"results", std::move(list)}};
}

report::Timeline timeline_of(const ExpertsBench& bench, const Communicator& comm,
                             const measure::ExpertsMeasurement& one, const std::vector<Plan>& plans,
                             const measure::Recorded& recorded) {
  return {
      .title = fmt::format("experts of {}, {} tokens of {}, {}, {}", one.model, one.tokens,
                           bench.replicated ? "all ranks" : "each rank", one.skew, name(bench.x)),
      .subtitle = fmt::format("{}; {} over {}{}{}", base::read_processor().model,
                              base::show_count(comm.world(), "rank"), comm.transport(),
                              one.link ? ", " + describe(*one.link) : "", show_clocks(recorded)),
      .product = static_cast<std::int64_t>(one.compute.median),
      .collective = static_cast<std::int64_t>(one.exchange.median),
      .runs = runs_of(plans, recorded)};
}

// Rank 0 prints the results; if it can't, all ranks end with the same status.
int be_rank(ExpertsBench bench, Words words, Communicator& whole) {
  Communicator comm = whole.with_link(std::nullopt);
  const auto refusal = measure::refusal_of_all(comm, [&] {
    if (comm.rank() == 0) check_writable(bench.files);
    PLAIT_CHECK(comm.world() > 1 || !has_link(bench.ratios),
                "--ratio: one rank has nothing to communicate; it can be 0");
    for (const measure::ExpertsModel& model : bench.models) measure::check_memory(bench, model);
  });
  if (refusal) return exit_status(*refusal);
  const bool traces = bench.files.traces();
  if (bench.ratios.empty()) {
    bench.ratios = {0};
    if (comm.world() > 1 && !bench.replicated)
      bench.ratios = traces ? std::vector<double>{1} : std::vector<double>{0, 0.5, 1, 2};
  }
  std::vector<measure::ExpertsMeasurement> results;
  for (const measure::ExpertsModel& model : bench.models) {
    for (auto& one : measure::measure(bench, model, comm)) results.push_back(std::move(one));
  }
  const std::vector<Plan> plans = {{.schedule = Schedule::serial}, {.schedule = Schedule::fused}};
  const auto recorded =
      traces ? measure::record(bench, bench.models.front(), plans, results.front().link, comm)
             : measure::Recorded{};
  const auto failure = measure::refusal_of_all(comm, [&] {
    if (comm.rank() != 0) return;
    if (traces)
      write_timelines(bench.files, timeline_of(bench, comm, results.front(), plans, recorded),
                      recorded);
    if (!bench.files.silences()) {
      answer(fmt::format("a layer of experts  x={}\n{}, {} over {}\n\n{}", name(bench.x),
                         base::read_processor().model, base::show_count(comm.world(), "rank"),
                         comm.transport(), show_experts(results)));
      answer(bench.files.show());
    }
    bench.files.write_json(show_experts_json(bench, comm, words, results));
  });
  if (failure) return exit_status(*failure);
  const bool equal =
      std::all_of(results.begin(), results.end(), [](const auto& one) { return one.bits_equal; });
  return equal ? kDone : kCheckFailed;
}

int measure_experts(OpVerb verb, Words words) {
  const auto bench = read_experts_options(verb, words);
  if (!bench) return kDone;
  // Ranks of a launcher check it together, later.
  if (place_from_environment().launcher.empty()) check_writable(bench->files);
  const int ranks = read_ranks("--ranks", bench->where.ranks, bench->where.transport);
  std::vector<std::string> whole = {verb == OpVerb::trace ? "trace" : "bench", "experts"};
  whole.insert(whole.end(), words.begin(), words.end());
  return as_ranks({.ranks = ranks, .transport = bench->where.transport}, whole,
                  [&](Communicator& comm) { return be_rank(*bench, words, comm); });
}

}  // namespace

int bench_experts(Words words) { return measure_experts(OpVerb::bench, words); }
int trace_experts(Words words) { return measure_experts(OpVerb::trace, words); }

}  // namespace plait::cli
