// plait predict heads: predicts the end of a model on other machines.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "cli/console.h"
#include "cli/json.h"
#include "cli/options.h"
#include "cli/output_files.h"
#include "cli/predict/predict_options.h"
#include "cli/predict/predictions.h"
#include "cli/predict/report.h"
#include "cli/problem_options.h"
#include "cli/table.h"
#include "cli/values.h"
#include "measure/memory.h"
#include "plait/vocabulary.h"
#include "predict/heads.h"

namespace plait::cli {
namespace {

using predict::Head;

constexpr Options::About kAbout = {
    .verb = "predict heads",
    .usage = "--m M --n N --k K [OPTIONS]",
    .purpose =
        "Predicts what follows a product by ranks' shares of a vocabulary of n ids, on other\n"
        "devices and networks:\n\n"
        "  top        the largest logits (matmul_top)\n"
        "  loss       cross entropy and its gradient (matmul_cross_entropy_with_gradient)\n"
        "  loss-alone cross entropy without a gradient (matmul_cross_entropy)\n"
        "  log-probs  the logarithms of targets' probabilities (matmul_log_probs)\n\n"
        "Modelled ranks with simulated clocks run the calls themselves. Searching and adding up\n"
        "logits, which are in a cache then, takes no time. The column `exchange` is the time\n"
        "without products. `gathered` is the same of top where all logits go to every rank, as by\n"
        "matmul-all-gather-columns, before the largest are searched. Nothing is measured or\n"
        "multiplied.",
    .examples =
        "Exit status: 0 done; 1 a file can't be written; 2 wrong usage.\n\n"
        "Examples:\n"
        "  plait predict heads --m 1,16 --n 151936 --k 2048 --device cpu --link 25gbit,5us\n"
        "  plait predict heads --m 2048 --n 151936 --k 4096 --head loss --device h100"};

// Each rank's slots are memory of this process.
constexpr int kMostRanks = 64;

struct Named {
  Head head;
  const char* word;
};
constexpr Named kHeads[] = {{Head::top, "top"},
                            {Head::loss, "loss"},
                            {Head::loss_alone, "loss-alone"},
                            {Head::log_probs, "log-probs"}};

std::vector<std::string> words_of_heads() {
  std::vector<std::string> words;
  for (const Named& one : kHeads) words.emplace_back(one.word);
  return words;
}

std::vector<std::string> read_heads(std::string_view option, const std::string& text) {
  return read_known(option, text, words_of_heads());
}

struct Asked {
  std::vector<measure::OpSize> sizes;
  std::vector<std::string> heads = words_of_heads();
  std::int64_t top = 1;
  Dtype dtype = Dtype::bf16;
  predict::Machine machine;
  OutputFiles files;
};

struct HeadPrediction {
  std::string head;
  measure::OpSize size;
  double products, exchange, time;  // nanoseconds
  std::optional<double> gathered;
};

// Ranks keep what travels: candidates or sums of all rows, and 512 rows of dx in f32, as they are
// sent and as a tree adds them up.
void check_it_fits(const Asked& asked, const measure::OpSize& size) {
  constexpr double kOfARow = 64;  // bytes, beside the logits that are kept
  constexpr double kKeptRows = 512;
  const double ranks = asked.machine.ranks;
  const auto m = static_cast<double>(size.m);
  const bool has_gradient =
      std::find(asked.heads.begin(), asked.heads.end(), "loss") != asked.heads.end();
  double bytes = ranks * ranks * m * (kOfARow + 8 * static_cast<double>(asked.top));
  if (has_gradient) bytes += 8 * ranks * std::min(m, kKeptRows) * static_cast<double>(size.k) * 4;
  measure::check_memory(bytes, base::sentence("a prediction with --ranks ", asked.machine.ranks,
                                              " and m=", size.m, " k=", size.k));
}

std::optional<Asked> read_options(Words words) {
  Asked asked;
  SizeOptions sizes;
  MachineOptions machine;
  Options options(kAbout);
  add_options(options, sizes);
  options.add("--head", "HEAD[,...]", asked.heads, read_heads,
              "top, loss, loss-alone, log-probs (default: all)");
  options.offer(words_of_heads());
  options.add("--top", whole(1, kMostTop, "K"), asked.top, "logits kept of a row (default: 1)");
  options.add("-d,--dtype", kDtype, asked.dtype, "dtype of all (default: bf16)");
  add_options(options, machine, "--ranks");
  add_json_option(options, asked.files);
  if (!options.parse_all(words)) return std::nullopt;
  asked.sizes = read_sizes(sizes);
  asked.machine = machine_of(machine);
  PLAIT_CHECK(asked.machine.ranks <= kMostRanks, "--ranks ", asked.machine.ranks,
              ": heads are predicted for at most ", kMostRanks);
  check_rate_is_known(asked.dtype, asked.machine, machine);
  check_distinct(asked.files, {{"the shapes", sizes.shapes}});
  for (const measure::OpSize& size : asked.sizes) {
    PLAIT_CHECK(size.n <= kMostVocabulary, "n=", size.n, ": a vocabulary has at most ",
                kMostVocabulary, " ids");
    PLAIT_CHECK(asked.top <= size.n, "--top ", asked.top, ": there are ", size.n, " ids");
    check_it_fits(asked, size);
  }
  return asked;
}

HeadPrediction predict_one(const Asked& asked, const measure::OpSize& size,
                           const std::string& word) {
  const Named* const head = std::find_if(std::begin(kHeads), std::end(kHeads),
                                         [&](const Named& one) { return word == one.word; });
  const predict::HeadProblem problem = {.head = head->head,
                                        .m = size.m,
                                        .n = size.n,
                                        .k = size.k,
                                        .dtype = asked.dtype,
                                        .top = asked.top};
  const predict::Machine& machine = asked.machine;
  const auto time = [](const predict::Outcome& outcome) {
    return static_cast<double>(outcome.time);
  };
  HeadPrediction result = {.head = word,
                           .size = size,
                           .products = static_cast<double>(products_alone(machine, problem)),
                           .exchange = time(predict::predict(machine, problem, {.product = false})),
                           .time = time(predict::predict(machine, problem)),
                           .gathered = {}};
  if (problem.head == Head::top)
    result.gathered = time(predict::predict(machine, gathered_logits(problem, machine.ranks),
                                            {.schedule = Schedule::serial}));
  return result;
}

std::string show(const Asked& asked, const std::vector<HeadPrediction>& predictions) {
  Table table({"head", "m", "n", "k", "products", "exchange", "predicted", "gathered", "speed-up"},
              /*left=*/1);
  for (const HeadPrediction& one : predictions) {
    const auto& gathered = one.gathered;
    table.add({one.head, fmt::to_string(one.size.m), fmt::to_string(one.size.n),
               fmt::to_string(one.size.k), show_time(one.products), show_time(one.exchange),
               show_time(one.time), gathered ? show_time(*gathered) : "-",
               gathered ? fmt::format("{:.2f}", *gathered / one.time) : "-"});
  }
  return fmt::format("{}\n\nheads of {}  top={}\n{}\n{}", kItIsAPrediction, name(asked.dtype),
                     asked.top, show_assumptions(asked.machine), table.text());
}

nlohmann::ordered_json as_json(const Asked& asked, const std::vector<HeadPrediction>& predictions) {
  const auto ms = [](double nanoseconds) { return nanoseconds * 1e-6; };
  Json list = Json::array();
  for (const HeadPrediction& one : predictions) {
    list.push_back({{"head", one.head},
                    {"m", one.size.m},
                    {"n", one.size.n},
                    {"k", one.size.k},
                    {"products_ms", ms(one.products)},
                    {"exchange_ms", ms(one.exchange)},
                    {"predicted_ms", ms(one.time)},
                    {"gathered_ms", one.gathered ? Json(ms(*one.gathered)) : Json()}});
  }
  return {{"prediction", true},
          {"top", asked.top},
          {"ranks", asked.machine.ranks},
          {"dtype", name(asked.dtype)},
          {"device", asked.machine.device.name},
          {"results", std::move(list)},
          {"assumptions", assumptions_json(asked.machine)}};
}

}  // namespace

int predict_heads(Words words) {
  const auto asked = read_options(words);
  if (!asked) return kDone;
  check_writable(asked->files);
  std::vector<HeadPrediction> predictions;
  for (const measure::OpSize& size : asked->sizes)
    for (const std::string& head : asked->heads)
      predictions.push_back(predict_one(*asked, size, head));
  if (!asked->files.silences()) answer(show(*asked, predictions));
  asked->files.write_json(as_json(*asked, predictions));
  return kDone;
}

}  // namespace plait::cli
