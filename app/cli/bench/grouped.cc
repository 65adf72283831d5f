// plait bench grouped: measures products of the experts of models, in one call and group by group.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "base/check.h"
#include "base/nearest.h"
#include "base/parallel.h"
#include "base/processor.h"
#include "base/text.h"
#include "cli/bench/experts_words.h"
#include "cli/bench/measurements.h"
#include "cli/console.h"
#include "cli/effort_options.h"
#include "cli/json.h"
#include "cli/options.h"
#include "cli/output_files.h"
#include "cli/problem_options.h"
#include "cli/table.h"
#include "cli/values.h"
#include "measure/grouped_case.h"
#include "measure/limits.h"
#include "plait/version.h"

namespace plait::cli {
namespace {

constexpr Options::About kAboutGrouped = {
    .verb = "bench grouped",
    .usage = "[OPTIONS]",
    .purpose =
        "Measures the first product of a layer of experts: groups of rows, each by its own "
        "weight.\n\n"
        "Prints the time of one call for all groups, of a matmul per group, and the time in which\n"
        "this machine reads the weights of groups that have rows. The three take turns.",
    .examples =
        "Exit status: 0 done; 1 a file can't be written; 2 wrong usage.\n\n"
        "Examples:\n"
        "  plait bench grouped\n"
        "  plait bench grouped --model qwen3-30b-a3b --tokens 1,512 --weight s8:channel\n"
        "  plait bench grouped --skew balanced --dtype f32 --json -"};

struct GroupedOptions : measure::GroupedSetup {
  OutputFiles files;
};

std::vector<std::string> read_skews(std::string_view option, const std::string& text) {
  return read_known(option, text, {"balanced", "skewed"});
}

std::optional<GroupedOptions> read_grouped_options(Words words) {
  GroupedOptions grouped;
  grouped.models = measure::experts_models();
  grouped.tokens = {1, 4, 16, 512};
  grouped.skews = {"balanced", "skewed"};
  grouped.threads = base::thread_count(0);
  DtypeOptions dtypes;
  Options options(kAboutGrouped);
  options.add("--model", "NAME[,...]", grouped.models, read_experts,
              "qwen3-30b-a3b, deepseek-v2-lite, gpt-oss-quarter (its width divided by\n"
              "four; default: all)");
  options.offer(experts_words());
  options.add("--tokens", sizes("T[,T...]"), grouped.tokens,
              "tokens, each of which goes to the model's number of experts\n"
              "(default: 1,4,16,512)");
  options.add("--skew", "SKEW[,...]", grouped.skews, read_skews,
              "balanced: experts are drawn alike; skewed: the first gets most rows\n"
              "(default: both)");
  options.offer({"balanced", "skewed"});
  add_options(options, dtypes);
  options.add("-w,--weight", "KIND", grouped.weight,
              "a dtype, or a scheme such as s8:channel, packed before the call\n"
              "(default: x's dtype)");
  options.offer(dtype_words());
  options.add("--threads|-t", kThreads, grouped.threads, "number of threads (default: OpenMP's)");
  options.add("-b,--backend", kBackend, grouped.backend,
              "backend of the product; see plait info (default: the best)");
  add_options(options, grouped.effort, "1");
  add_json_option(options, grouped.files);
  if (!options.parse_all(words)) return std::nullopt;
  grouped.x = dtypes.x;
  grouped.out = dtypes.result();
  if (grouped.weight.empty()) grouped.weight = name(grouped.x);
  PLAIT_CHECK(is_packed_kind(grouped.weight), "--weight ", grouped.weight,
              " is neither a dtype nor a scheme such as s8:channel");
  return grouped;
}

struct GroupedResult {
  std::string model;
  std::string product;
  std::int64_t tokens;
  std::string skew;
  std::vector<std::int64_t> rows;
  std::size_t weight_bytes;
  measure::Times one_call, by_group, reading;
};

std::vector<GroupedResult> measure_groups(const GroupedOptions& options) {
  std::vector<GroupedResult> results;
  for (const measure::ExpertsModel& model : options.models) {
    measure::GroupedOperands operands(options, model);
    for (const std::int64_t tokens : options.tokens) {
      for (const std::string& skew : options.skews) {
        const auto rows = measure::rows_of_experts(model, tokens, skew);
        const std::size_t bytes = operands.weight_bytes(rows);
        const measure::Limit limit = measure::reading(bytes, options.threads);
        const auto times = measure::race(
            {operands.one_call(rows), operands.group_by_group(rows), limit.call}, options.effort);
        results.push_back({.model = model.name,
                           .product = name(operands.desc()),
                           .tokens = tokens,
                           .skew = skew,
                           .rows = rows,
                           .weight_bytes = bytes,
                           .one_call = times[0],
                           .by_group = times[1],
                           .reading = times[2]});
      }
    }
  }
  return results;
}

std::int64_t touched(const GroupedResult& one) {
  return std::count_if(one.rows.begin(), one.rows.end(), [](auto rows) { return rows > 0; });
}

std::string show_grouped(const GroupedOptions& options, const std::vector<GroupedResult>& results) {
  Table table({"model", "tokens", "skew", "groups", "most rows", "one call", "by group", "speed-up",
               "reading", "% of reading"},
              /*left=*/1);
  for (const GroupedResult& one : results) {
    table.add({one.model, fmt::to_string(one.tokens), one.skew, fmt::to_string(touched(one)),
               fmt::to_string(*std::max_element(one.rows.begin(), one.rows.end())),
               show_time(one.one_call.median), show_time(one.by_group.median),
               fmt::format("{:.2f}", one.by_group.median / one.one_call.median),
               show_time(one.reading.median),
               fmt::format("{:.1f}", one.reading.median / one.one_call.median * 100)});
  }
  return fmt::format("y = x·w of each group  x={} w={} out={}\n{}, {}\n\n{}", name(options.x),
                     options.weight, name(options.out), base::read_processor().model,
                     base::show_count(options.threads, "thread"), table.text());
}

nlohmann::ordered_json show_grouped_json(const GroupedOptions& options, Words words,
                                         const std::vector<GroupedResult>& results) {
  Json list = Json::array();
  for (const GroupedResult& one : results) {
    list.push_back({{"model", one.model},
                    {"product", one.product},
                    {"tokens", one.tokens},
                    {"skew", one.skew},
                    {"rows", one.rows},
                    {"weight_bytes", one.weight_bytes},
                    {"one_call_ns", one.one_call.median},
                    {"by_group_ns", one.by_group.median},
                    {"reading_ns", one.reading.median},
                    {"repetitions", one.one_call.repetitions}});
  }
  return {{"plait", kVersion},
          {"words", std::vector<std::string>(words.begin(), words.end())},
          {"processor", base::read_processor().model},
          {"threads", options.threads},
          {"results", std::move(list)}};
}

}  // namespace

int bench_grouped(Words words) {
  const auto options = read_grouped_options(words);
  if (!options) return kDone;
  check_writable(options->files);
  const std::vector<GroupedResult> results = measure_groups(*options);
  if (!options->files.silences()) answer(show_grouped(*options, results));
  options->files.write_json(show_grouped_json(*options, words, results));
  return kDone;
}

}  // namespace plait::cli
