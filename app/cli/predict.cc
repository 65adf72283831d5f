// plait predict: predicts the time of operators and models on other machines.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/check.h"
#include "base/nearest.h"
#include "cli/bench/measurements.h"
#include "cli/help_page.h"
#include "cli/predict/predictions.h"
#include "cli/values.h"
#include "cli/verbs.h"
#include "predict/device.h"
#include "predict/network.h"

namespace plait::cli {
namespace {

constexpr const char* kExperts = "experts";
constexpr const char* kHeads = "heads";

std::vector<HelpPage::List> known_names() {
  std::vector<HelpPage::List> lists = {{.title = "Operators", .entries = {}},
                                       {.title = "Models", .entries = {}},
                                       {.title = "Devices", .entries = {}},
                                       {.title = "Networks", .entries = {}}};
  for (const std::string& word : measured_words()) lists[0].entries.push_back({word});
  lists[0].entries.push_back({kExperts, "a layer of experts of a model"});
  lists[0].entries.push_back({kHeads, "what follows a product by shares of a vocabulary"});
  for (const plan::Model& model : plan::models())
    lists[1].entries.push_back({std::string(model.name)});
  for (const predict::Device& device : predict::devices())
    lists[2].entries.push_back(
        {device.name, fmt::format("{:.0f} TFLOP/s and {:.0f} GB/s at most",
                                  device.peak_flops * 1e-12, device.peak_memory * 1e-9)});
  for (const predict::NamedNetwork& network : predict::networks())
    lists[3].entries.push_back(
        {std::string(network.name),
         fmt::format("{:.4g} GB/s each way; {}", network.peak * 1e-9, network.summary)});
  return lists;
}

HelpPage overview() {
  HelpPage page = {
      .name = "predict",
      .usage =
          "predict OPERATOR --m M --n N --k K [OPTIONS]\n"
          "predict experts [OPTIONS]\n"
          "predict heads --m M --n N --k K [OPTIONS]\n"
          "predict MODEL --tp N [OPTIONS]\n"
          "predict --measured FILE",
      .purpose =
          "Predicts times of operators and models on other devices and networks. plait's own\n"
          "schedules run on modelled ranks with simulated clocks. The output lists the "
          "assumptions.",
      .lists = known_names(),
      .options = {{.names = {"-h", "--help"},
                   .purpose = "print this page; after OPERATOR, MODEL or --measured, its options"}},
      .examples =
          "Exit status: 0 done; 1 a file can't be written; 2 wrong usage.\n\n"
          "Examples:\n"
          "  plait predict matmul-all-reduce --m 4096 --n 8192 --k 8192 --device h100 --link "
          "nvlink4\n"
          "  plait predict llama2-70b --tp 8 --device ascend-910b --link hccs\n"
          "  plait predict --measured bench.json\n"};
  for (const std::size_t list : {0, 1})
    for (const HelpPage::Entry& entry : page.lists[list].entries) page.subpages.push_back(entry);
  page.subpages.push_back({"--measured"});
  return page;
}

}  // namespace

int predict(Words words) {
  PLAIT_CHECK(
      !words.empty(),
      "an operator or a model is missing, such as matmul-all-reduce (plait predict --help)");
  const std::string& first = words[0];
  if (asks_for_help(words)) return show_overview(overview(), words), kDone;
  if (first.starts_with("-")) {
    const bool help = words.size() == 2 && first == "--measured" && asks_for_help(words.subspan(1));
    return predict_measured(help ? words.subspan(1) : words);
  }
  if (const plan::Model* model = plan::find_model(first))
    return predict_model(*model, words.subspan(1));
  if (first == kExperts) return predict_experts(words.subspan(1));
  if (first == kHeads) return predict_heads(words.subspan(1));
  const auto op = find_measured(first);
  std::vector<std::string> names = measured_words();
  names.insert(names.end(), {kExperts, kHeads});
  for (const plan::Model& model : plan::models()) names.emplace_back(model.name);
  PLAIT_CHECK(op && (op->exchange || traits_of(op->op).communicates()), "cannot predict ", first,
              base::did_you_mean(first, names), " (plait predict --help)");
  return predict_operator(*op, words.subspan(1));
}

}  // namespace plait::cli
