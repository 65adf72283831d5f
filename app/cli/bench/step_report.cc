#include "cli/bench/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/parallel.h"
#include "base/processor.h"
#include "base/text.h"
#include "cli/bench/oversubscription.h"
#include "cli/bench/timelines.h"
#include "cli/json.h"
#include "cli/table.h"

namespace plait::cli {
namespace {

double percent(double fraction) { return 100 * fraction; }

double tokens_per_second(const StepOptions& options, const measure::StepTimes& one) {
  return static_cast<double>(options.tokens) / one.times.median * 1e9;
}

std::int64_t batch(const StepOptions& options) {
  return options.sequence > 0 ? options.tokens / options.sequence : 1;
}

// All pauses of a step: one after each of its layers, in each pass.
double pauses(const StepOptions& options, const measure::StepMeasurement& result) {
  const auto layers = static_cast<double>(options.linears.size()) * options.layers;
  return options.passes() * layers * static_cast<double>(result.pause);
}

std::string show_tokens(const StepOptions& options) {
  const std::string text = base::show_count(static_cast<std::size_t>(options.tokens), "token");
  return batch(options) > 1 ? fmt::format("{} in {} sequences", text, batch(options)) : text;
}

// Lists the options that differ from their defaults, each after a comma.
std::string show_ways(const StepOptions& options) {
  std::string text;
  if (options.wire != Dtype::f32) text += fmt::format(", wire {}", name(options.wire));
  if (options.grad_weight != Dtype::f32)
    text += fmt::format(", gradients {}", name(options.grad_weight));
  if (options.decodes) text += ", forward only";
  if (!options.sequence_parallel) text += ", not sequence parallel";
  if (options.keep_gathered) text += ", gathered rows kept";
  if (options.column_backward) text += ", column layers' backward in an operator";
  if (options.stand_in > 0) text += fmt::format(", stand-in {:g}", options.stand_in);
  return text;
}

std::string show_layers(const StepOptions& options) {
  std::string text;
  for (const plan::LinearLayer& layer : options.linears) {
    text += fmt::format("{}{} {} {} to {}", text.empty() ? "" : ", ", layer.name, name(layer.kind),
                        layer.in, layer.out);
  }
  return text;
}

std::string show_best(const StepOptions& options, const measure::StepMeasurement& result) {
  const std::string oversubscribed =
      show_oversubscription(result.ranks, options.threads, result.transport);
  if (!oversubscribed.empty())
    return oversubscribed + " Use plait predict for more ranks than cores.\n";
  const measure::StepTimes& best = result.fastest();
  if (result.comm_share() < measure::kNoise)
    return "\nThere is almost no exposed communication to hide here.\n";
  if (result.plans.size() == 1) return "";
  if (&best == result.plans.data()) return "\nNo plan is faster than the serial one here.\n";
  const std::string gains =
      fmt::format("\nThe plan \"{}\" gains {:.1f} %", name(best.plan), percent(result.gain(best)));
  const double possible = result.amdahl_gain();
  // The products alone were measured in slower moments, beyond the error of two medians.
  if (result.exposed(best) < -measure::kNoise * result.products.median) {
    return fmt::format(
        "{} where at most {:.1f} % is possible.\nOther programs disturbed the measurement: repeat "
        "it.\n",
        gains, percent(possible));
  }
  const double of_all = result.gain(best) / possible;
  if (of_all > 1) return gains + ": it hides all communication, within the medians' error.\n";
  return fmt::format("{}, which is {:.0f} % of what Amdahl's law allows.\n", gains,
                     percent(of_all));
}

// "llama2-70b, 1 of 80 layers, widths x 0.25, 1024 tokens, bf16, wire bf16". Default values, such
// as a wire of f32, are left out.
std::string show_step(const StepOptions& options) {
  const std::string what =
      fmt::format("{}, {}{}", show_tokens(options), name(options.dtype), show_ways(options));
  if (options.model.empty()) {
    const plan::LinearLayer& layer = options.linears.front();
    return fmt::format("{} layer, {} inputs, {} outputs, {}", name(layer.kind), layer.in, layer.out,
                       what);
  }
  return fmt::format("{}, {} of {} layers, widths x {:g}, {}", options.model, options.layers,
                     options.layers_of_model, options.scale, what);
}

// "AMD EPYC; 2 ranks over shm, emulated link, 10 Gbit/s, 5 us"
std::string show_place(const measure::StepMeasurement& result) {
  return fmt::format("{}; {} over {}{}", base::read_processor().model,
                     base::show_count(static_cast<std::size_t>(result.ranks), "rank"),
                     result.transport, result.link ? ", " + describe(*result.link) : "");
}

}  // namespace

report::Timeline timeline_of(const StepOptions& options, const measure::StepMeasurement& result,
                             const measure::Recorded& recorded) {
  return {.title = show_step(options),
          .subtitle = show_place(result),
          .product = static_cast<std::int64_t>(result.products.median),
          .runs = runs_of(options.plans, recorded)};
}

std::string show_text(const StepOptions& options, const measure::StepMeasurement& result) {
  std::string text = show_step(options) + "\n";
  if (!options.model.empty()) text += show_layers(options) + "\n";
  text += show_place(result) + "\n\n";
  text += fmt::format(
      "products alone {}{}, serial step {}: communication is {:.1f} % of it\n"
      "the possible gain is at most {:.1f} %\n\n",
      show_time(result.products.median),
      result.pause > 0 ? fmt::format(" with {} of waiting for attention and norms",
                                     show_time(pauses(options, result)))
                       : "",
      show_time(result.serial()), percent(std::max(result.comm_share(), 0.0)),
      percent(std::max(result.amdahl_gain(), 0.0)));
  // Forward is the whole step where there is nothing else.
  const auto without_forward = [&](std::vector<std::string> row) {
    if (options.decodes) row.erase(row.begin() + 4);
    return row;
  };
  Table table(without_forward({"plan", "step", "min", "max", "forward", "exposed", "gain",
                               "tokens/s", "peak memory", "bits"}),
              /*left=*/1);
  for (const measure::StepTimes& one : result.plans) {
    table.add(
        without_forward({name(one.plan), show_time(one.times.median), show_time(one.times.min),
                         show_time(one.times.max), show_time(one.forward),
                         show_time(std::max(result.exposed(one), 0.0)),
                         fmt::format("{:.1f} %", percent(result.gain(one))),
                         fmt::format("{:.0f}", tokens_per_second(options, one)),
                         one.peak > 0 ? base::show_bytes(static_cast<double>(one.peak)) : "-",
                         one.bits_equal ? "equal" : "DIFFER"}));
  }
  return text + table.text() + show_best(options, result);
}

nlohmann::ordered_json show_json(const StepOptions& options, const measure::StepMeasurement& result,
                                 const std::optional<StepProfile>& profile) {
  Json schedules = Json::array();
  for (const measure::StepTimes& one : result.plans) {
    schedules.push_back({{"name", name(one.plan)},
                         {"step_ms", one.times.median * 1e-6},
                         {"gain_percent", percent(result.gain(one))},
                         {"exposed_comm_ms", result.exposed(one) * 1e-6},
                         {"tokens_per_s", tokens_per_second(options, one)},
                         {"peak_bytes", one.peak},
                         {"bits_equal", one.bits_equal}});
  }
  const plan::LinearLayer& layer = options.linears.front();
  return {{"model", options.model.empty()
                        ? fmt::format("{} {}x{}", name(layer.kind), layer.in, layer.out)
                        : options.model},
          {"layers", options.layers},
          {"scale", options.scale},
          {"tp", result.ranks},
          {"seq", options.sequence > 0 ? options.sequence : options.tokens},
          {"batch", batch(options)},
          {"forward_only", options.decodes},
          {"dtype", name(options.dtype)},
          {"grad", name(options.grad_weight)},
          {"wire", name(options.wire)},
          {"sequence_parallel", options.sequence_parallel},
          {"keep_gathered", options.keep_gathered},
          {"column_backward", options.column_backward},
          {"stand_in", options.stand_in},
          {"stand_in_ms", pauses(options, result) * 1e-6},
          {"transport", result.transport},
          {"threads", base::thread_count(options.threads)},
          {"link", result.link ? Json(name(*result.link)) : Json()},
          {"comm_share", result.comm_share()},
          {"amdahl_gain_percent", percent(result.amdahl_gain())},
          {"schedules", std::move(schedules)},
          {"profile", profile ? show_json(*profile) : Json()},
          {"machine", base::read_processor().model}};
}

}  // namespace plait::cli
