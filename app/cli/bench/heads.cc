// plait bench heads: measures what follows a product by ranks' shares of a vocabulary.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/processor.h"
#include "base/text.h"
#include "cli/as_ranks.h"
#include "cli/bench/measurements.h"
#include "cli/bench/op_options.h"
#include "cli/bench/timelines.h"
#include "cli/console.h"
#include "cli/effort_options.h"
#include "cli/json.h"
#include "cli/options.h"
#include "cli/output_files.h"
#include "cli/problem_options.h"
#include "cli/table.h"
#include "cli/values.h"
#include "measure/collective_check.h"
#include "measure/heads_measure.h"

namespace plait::cli {
namespace {

constexpr Options::About kAboutHeads = {
    .verb = "bench heads",
    .usage = "--m M --n N --k K [OPTIONS]",
    .purpose =
        "Measures what follows a product by ranks' shares of a vocabulary of n ids:\n\n"
        "  top        the largest logits (matmul_top)\n"
        "  logits     the product, and all logits on every rank (matmul_all_gather_columns)\n"
        "  columns    logits that are there, brought to every rank (all_gather_columns)\n"
        "  loss       cross entropy and its gradient (matmul_cross_entropy_with_gradient)\n"
        "  loss-alone cross entropy without a gradient (matmul_cross_entropy)\n"
        "  log-probs  the logarithms of targets' probabilities (matmul_log_probs)\n\n"
        "Gathered is the time of the same with logits that are gathered as the rows of a\n"
        "transposed matrix, and searched afterwards; the last three have none.\n"
        "Products is the time of the products alone: one, or the three of a loss. Reading is the\n"
        "time in which all ranks read their weights.",
    .examples =
        "Exit status: 0 done; 1 a file can't be written; 2 wrong usage; 3 a rank was lost.\n\n"
        "Examples:\n"
        "  plait bench heads --m 1,16 --n 151936 --k 2048 --head top\n"
        "  plait bench heads --m 512 --n 151936 --k 2048 --head columns,logits --json -"};

constexpr Options::About kAboutTrace = {
    .verb = "trace heads",
    .usage = "--m M --n N --k K [OPTIONS]",
    .purpose =
        "Draws a timeline of what follows a product by ranks' shares of a vocabulary of n ids:\n\n"
        "  top        the largest logits (matmul_top), below the same with gathered logits\n"
        "  loss       cross entropy and its gradient (matmul_cross_entropy_with_gradient)\n"
        "  loss-alone cross entropy without a gradient (matmul_cross_entropy)\n"
        "  log-probs  the logarithms of targets' probabilities (matmul_log_probs)\n\n"
        "Writes it as a page for a browser (plait-trace.html) and for Perfetto\n"
        "(plait-trace.json), or only the files named by --html, --svg and --trace. Measures\n"
        "first, like plait bench heads, but for a shorter time. All logits on every rank are\n"
        "the operator matmul-all-gather-columns.",
    .examples =
        "Exit status: 0 done; 1 a file can't be written; 2 wrong usage; 3 a rank was lost.\n\n"
        "Examples:\n"
        "  plait trace heads --m 16 --n 151936 --k 2048\n"
        "  plait trace heads --m 512 --n 151936 --k 2048 --head loss --svg picture.svg"};

struct HeadsOptions : measure::HeadsSetup {
  OutputFiles files;
};

// The heads that plait trace draws: those that are no operators.
const std::vector<std::string>& traced_words() {
  static const std::vector<std::string> words = {"top", "loss", "loss-alone", "log-probs"};
  return words;
}

std::vector<std::string> read_heads(std::string_view option, const std::string& text) {
  return read_known(option, text, measure::heads_words());
}

std::vector<std::string> read_traced(std::string_view option, const std::string& text) {
  std::vector<std::string> heads = read_known(option, text, traced_words());
  check_single("head", heads.size());
  return heads;
}

std::optional<Link> read_link(std::string_view, const std::string& text) {
  return parse_link(text);
}

std::optional<HeadsOptions> read_heads_options(OpVerb verb, Words words) {
  const bool traces = verb == OpVerb::trace;
  HeadsOptions heads;
  SizeOptions sizes;
  RankOptions ranks;
  Options options(traces ? kAboutTrace : kAboutHeads);
  add_options(options, sizes);
  if (traces) {
    heads.heads = {"top"};
    options.add("--head", "HEAD", heads.heads, read_traced,
                "top, loss, loss-alone, log-probs (default: top)");
    options.offer(traced_words());
  } else {
    heads.heads = measure::heads_words();
    options.add("--head", "HEAD[,...]", heads.heads, read_heads,
                "top, logits, columns, loss, loss-alone, log-probs (default: all)");
    options.offer(measure::heads_words());
  }
  options.add("--top", whole(1, 1024, "K"), heads.top, "logits kept of a row (default: 1)");
  options.add("-d,--dtype", kDtype, heads.x, "dtype of x, weight and logits (default: bf16)");
  add_options(options, ranks);
  options.add("-l,--link", "LINK", heads.link, read_link,
              "emulated link between all ranks, such as 25gbit,5us");
  add_options(options, heads.effort, traces ? "0.3" : "1");
  if (traces) {
    add_options(options, heads.files);
  } else {
    add_json_option(options, heads.files);
  }
  if (!options.parse_all(words)) return std::nullopt;
  heads.sizes = read_sizes(sizes);
  if (traces) {
    name_usual_files(heads.files);
    check_single("size", heads.sizes.size());
  }
  check_distinct(heads.files, {{"the shapes", sizes.shapes}});
  for (const measure::OpSize& size : heads.sizes) {
    PLAIT_CHECK(heads.top <= size.n, "--top ", heads.top, ": there are ", size.n, " ids");
  }
  heads.ranks = read_ranks("--ranks", ranks.ranks, ranks.transport);
  heads.transport = ranks.transport;
  heads.threads = ranks.threads;
  return heads;
}

// "AMD EPYC; 2 ranks over shm, emulated link, 10 Gbit/s, 5 us"
std::string show_place(const HeadsOptions& options, const Communicator& comm) {
  return fmt::format("{}; {} over {}{}", base::read_processor().model,
                     base::show_count(comm.world(), "rank"), comm.transport(),
                     options.link ? ", " + describe(*options.link) : "");
}

std::string show_heads(const HeadsOptions& options, const Communicator& comm,
                       const std::vector<measure::HeadTimes>& results) {
  const auto shown = [](const measure::Times& times) {
    return times.repetitions > 0 ? show_time(times.median) : "-";
  };
  Table table({"head", "m", "n", "k", "time", "gathered", "speed-up", "products", "reading"},
              /*left=*/1);
  for (const measure::HeadTimes& one : results) {
    const auto& gathered = one.gathered;
    table.add({one.head, fmt::to_string(one.size.m), fmt::to_string(one.size.n),
               fmt::to_string(one.size.k), shown(one.time), gathered ? shown(*gathered) : "-",
               gathered ? fmt::format("{:.2f}", gathered->median / one.time.median) : "-",
               shown(one.products), shown(one.reading)});
  }
  return fmt::format("heads of {}  top={}\n{}\n\n{}", name(options.x), options.top,
                     show_place(options, comm), table.text());
}

report::Timeline timeline_of(const HeadsOptions& options, const Communicator& comm,
                             const measure::HeadTimes& times, const measure::Recorded& recorded) {
  std::vector<std::string> names = {times.head};
  if (times.gathered) names.insert(names.begin(), "gathered");
  return {.title = fmt::format("{}, m={} n={} k={}, {}", times.head, times.size.m, times.size.n,
                               times.size.k, name(options.x)),
          .subtitle = show_place(options, comm) + show_clocks(recorded),
          .product = static_cast<std::int64_t>(times.products.median),
          .runs = runs_of(names, recorded)};
}

nlohmann::ordered_json show_heads_json(const HeadsOptions& options, const Communicator& comm,
                                       const std::vector<measure::HeadTimes>& results) {
  Json list = Json::array();
  for (const measure::HeadTimes& one : results) {
    const auto time = [](const measure::Times& times) {
      return times.repetitions > 0 ? Json(times.median) : Json();
    };
    list.push_back({{"head", one.head},
                    {"m", one.size.m},
                    {"n", one.size.n},
                    {"k", one.size.k},
                    {"time_ns", one.time.median},
                    {"gathered_ns", one.gathered ? time(*one.gathered) : Json()},
                    {"products_ns", time(one.products)},
                    {"reading_ns", time(one.reading)}});
  }
  return {{"dtype", name(options.x)},
          {"top", options.top},
          {"ranks", comm.world()},
          {"transport", comm.transport()},
          {"link", options.link ? Json(name(*options.link)) : Json()},
          {"machine", base::read_processor().model},
          {"results", std::move(list)}};
}

int be_rank_of_heads(HeadsOptions options, Communicator& whole) {
  if (!options.link) options.link = whole.link();
  Communicator comm = whole.with_link(std::nullopt);
  const auto refusal = measure::refusal_of_all(comm, [&] {
    if (comm.rank() == 0) check_writable(options.files);
    for (const measure::OpSize& size : options.sizes)
      measure::check_memory(options, size, comm.world());
  });
  if (refusal) return exit_status(*refusal);
  const std::vector<measure::HeadTimes> results = measure::measure(options, comm);
  const bool traces = options.files.traces();
  const auto recorded = traces ? measure::record(options, comm) : measure::Recorded{};
  const auto failure = measure::refusal_of_all(comm, [&] {
    if (comm.rank() != 0) return;
    if (!options.files.silences()) answer(show_heads(options, comm, results));
    if (traces)
      write_timelines(options.files, timeline_of(options, comm, results.front(), recorded),
                      recorded);
    if (!options.files.silences()) answer(options.files.show());
    options.files.write_json(show_heads_json(options, comm, results));
  });
  return failure ? exit_status(*failure) : kDone;
}

int measure_heads(OpVerb verb, Words words) {
  const auto options = read_heads_options(verb, words);
  if (!options) return kDone;
  if (place_from_environment().launcher.empty()) check_writable(options->files);
  std::vector<std::string> whole = {verb == OpVerb::trace ? "trace" : "bench", "heads"};
  whole.insert(whole.end(), words.begin(), words.end());
  return as_ranks({.ranks = options->ranks, .transport = options->transport}, whole,
                  [&](Communicator& comm) { return be_rank_of_heads(*options, comm); });
}

}  // namespace

int bench_heads(Words words) { return measure_heads(OpVerb::bench, words); }
int trace_heads(Words words) { return measure_heads(OpVerb::trace, words); }

}  // namespace plait::cli
