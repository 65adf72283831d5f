#include "cli/predict/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/json.h"
#include "cli/table.h"
#include "ops/shapes.h"

namespace plait::cli {
namespace {

constexpr double kNextToNothing = 0.02;  // of the serial time

double ms(double nanoseconds) { return nanoseconds * 1e-6; }

// Without partial sums chunks have x's dtype, whatever wire was requested.
Dtype wire_of(const OpPredictOptions& options) {
  const predict::Problem& problem = options.problem;
  if (options.op.exchange) return options.op.exchange->product_first ? problem.out : problem.x;
  return ops::wire_of(problem.op, problem.x, problem.wire);
}

}  // namespace

std::optional<double> OpPrediction::efficiency(std::size_t plan) const {
  const double hidden_at_best = serial() - ideal();
  if (hidden_at_best < kNextToNothing * serial()) return std::nullopt;
  return (serial() - plans[plan]) / hidden_at_best;
}

std::string show_assumptions(const predict::Machine& machine) {
  return fmt::format("{}; {}\n{}\n",
                     base::show_count(static_cast<std::size_t>(machine.ranks), "rank"),
                     predict::describe(machine.device), predict::describe(machine.network));
}

nlohmann::ordered_json assumptions_json(const predict::Machine& machine) {
  return {{"rate_flops", machine.device.flops()},
          {"memory_bytes_per_second", machine.device.memory()},
          {"launch_ns", machine.device.launch},
          {"memory_launch_ns", machine.device.memory_launch},
          {"lost", machine.device.lost},
          {"link_bytes_per_second", machine.network.link.bytes_per_second},
          {"link_latency_ns", machine.network.link.latency_ns},
          {"wiring", name(machine.network.wiring)},
          {"processor_s_per_gb", machine.network.processor_ns_per_byte}};
}

std::string show_text(const OpPredictOptions& options, const OpPrediction& prediction) {
  const predict::Problem& problem = options.problem;
  const measure::OpSize& size = prediction.size;
  std::string text = fmt::format(
      "{}\n\n{}  m={} n={} k={} x={} weight={} out={} wire={}\n{}\nproduct alone {}, collective "
      "alone {}, ideal {}\n\n",
      kItIsAPrediction, options.op.name(), size.m, size.n, size.k, name(problem.x), options.weight,
      name(problem.out), name(wire_of(options)), show_assumptions(options.machine),
      show_time(prediction.product), show_time(prediction.collective),
      show_time(prediction.ideal()));
  Table table({"plan", "predicted", "speed-up", "efficiency"}, /*left=*/1);
  for (std::size_t i = 0; i < options.plans.size(); ++i) {
    const auto efficiency = prediction.efficiency(i);
    table.add({name(options.plans[i]), show_time(prediction.plans[i]),
               fmt::format("{:.3f}", prediction.speedup(i)),
               efficiency ? fmt::format("{:.2f}", *efficiency) : "-"});
  }
  return text + table.text();
}

nlohmann::ordered_json show_json(const OpPredictOptions& options, const OpPrediction& prediction) {
  Json schedules = Json::array();
  for (std::size_t i = 0; i < options.plans.size(); ++i) {
    const auto efficiency = prediction.efficiency(i);
    schedules.push_back({{"name", name(options.plans[i].schedule)},
                         {"plan", name(options.plans[i])},
                         {"predicted_ms", ms(prediction.plans[i])},
                         {"speedup", prediction.speedup(i)},
                         {"overlap_efficiency", efficiency ? Json(*efficiency) : Json()}});
  }
  return {{"prediction", true},
          {"op", options.op.name()},
          {"m", prediction.size.m},
          {"n", prediction.size.n},
          {"k", prediction.size.k},
          {"ranks", options.machine.ranks},
          {"dtype", name(options.problem.x)},
          {"weight", options.weight},
          {"out", name(options.problem.out)},
          {"wire", name(wire_of(options))},
          {"device", options.machine.device.name},
          {"t_gemm_ms", ms(prediction.product)},
          {"t_comm_ms", ms(prediction.collective)},
          {"ideal_ms", ms(prediction.ideal())},
          {"schedules", std::move(schedules)},
          {"assumptions", assumptions_json(options.machine)}};
}

}  // namespace plait::cli
