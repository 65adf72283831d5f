#include "cli/predict/predict_options.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/text.h"
#include "cli/options.h"
#include "cli/problem_options.h"
#include "cli/values.h"
#include "plait/quantized.h"

namespace plait::cli {
namespace {

constexpr std::int64_t kMostDrawn = 64;

constexpr const char* kPurpose =
    "Predicts an operator on other devices and networks. Modelled ranks with simulated clocks\n"
    "run its own schedules; products, copies and sums take the device's time, and chunks travel\n"
    "over a modelled network. Nothing is measured or multiplied.";

constexpr const char* kExamples =
    "Exit status: 0 done; 1 a file can't be written; 2 wrong usage.\n\n"
    "Examples:\n"
    "  plait predict matmul-all-reduce --m 4096 --n 8192 --k 8192 --device h100 --link nvlink4\n"
    "  plait predict all-gather-matmul --m 8192 --n 8192 --k 8192 --device a100 --link pcie4\n"
    "  plait predict matmul-reduce-scatter --m 8192 --n 8192 --k 8192 --plan \"fused chunk=512\"\n";

template <class Known>
std::vector<std::string> names_of(const Known& known) {
  std::vector<std::string> names;
  for (const auto& one : known) names.emplace_back(one.name);
  return names;
}

auto number_between(double least, double most) {
  return [least, most](std::string_view option, const std::string& text) {
    const auto number = base::parse_number(text);
    PLAIT_CHECK(number && *number >= least && *number <= most, option, ' ', text,
                " is not a number from ", least, " to ", most);
    return *number;
  };
}

auto rate() { return number_between(1e-3, 1e6); }

predict::Wiring read_wiring(std::string_view option, const std::string& text) {
  for (const auto wiring :
       {predict::Wiring::pairs, predict::Wiring::ports, predict::Wiring::shared}) {
    if (text == comm::modelled::name(wiring)) return wiring;
  }
  base::fail(Code::invalid_argument, option, ' ', text, " is none of pairs, ports, shared");
}

// The usual network of a device.
std::string usual_link(const std::string& device) {
  if (device == "a100") return "nvlink3";
  if (device == "ascend-910b") return "hccs";
  PLAIT_CHECK(device != "cpu",
              "the device cpu has no usual network; give one, such as --link 25gbit,5us");
  return "nvlink4";
}

}  // namespace

double weight_bytes(const std::string& weight, Dtype x) {
  if (const auto scheme = parse_quant_scheme(weight)) return scheme->bits / 8.0;
  return static_cast<double>(size_of(parse_dtype(weight).value_or(x)));
}

void add_options(Options& options, MachineOptions& machine, const char* ranks) {
  options.add(ranks, whole(1, kMostPredictedRanks), machine.ranks, "number of ranks (default: 8)");
  options.add("--device", "NAME", machine.device,
              fmt::format("device of each rank (default: h100): {}",
                          fmt::join(names_of(predict::devices()), ", ")));
  options.offer(names_of(predict::devices()));
  options.add("-l,--link", "LINK", machine.link,
              fmt::format("{}", fmt::join(names_of(predict::networks()), ", ")) +
                  ",\nor one port per rank, such as 25gbit,5us\n"
                  "(default: the device's usual network)");
  options.offer(names_of(predict::networks()));
  options.add("--wiring", "WIRING", machine.wiring, read_wiring,
              "where the network has links: pairs (between every two ranks), ports (one\n"
              "for each rank) or shared (one for all ranks); default: the network's own");
  options.offer({"pairs", "ports", "shared"});
  options.add("--rate", "TFLOPS", machine.rate, rate(),
              "attained TFLOP/s of products (default: the device's)");
  add_memory_option(options, machine.memory, "default: the device's");
  options.add("--lost", whole(0, 99, "PERCENT"), machine.lost,
              "share of the product rate that is lost while chunks are sent\n"
              "(default: the device's)");
  add_processor_option(options, machine.processor_per_gb, "default: 0");
}

void add_memory_option(Options& options, std::optional<double>& memory, const char* note) {
  options.add("--memory", "GBS", memory, rate(),
              base::sentence("attained GB/s of copies and sums (", note, ")"));
}

void add_processor_option(Options& options, std::optional<double>& processor_per_gb,
                          const char* note) {
  constexpr double kMostSeconds = 100;
  options.add(
      "--processor-per-gb", "SECONDS", processor_per_gb, number_between(0, kMostSeconds),
      base::sentence("processor time that a network between hosts takes from a rank for each "
                     "GB\nthat it sends or receives, such as 0.45 for TCP (",
                     note, ")"));
}

predict::Machine machine_of(const MachineOptions& options) {
  predict::Machine machine = {.device = predict::find_device(options.device),
                              .network = predict::find_network(
                                  options.link.empty() ? usual_link(options.device) : options.link),
                              .ranks = options.ranks};
  if (options.wiring) machine.network.wiring = *options.wiring;
  if (options.rate) {
    machine.device.peak_flops = *options.rate * 1e12;
    machine.device.attained = 1;
  }
  if (options.memory) {
    machine.device.peak_memory = *options.memory * 1e9;
    machine.device.memory_share = 1;
  }
  if (options.lost) machine.device.lost = *options.lost / 100;
  if (options.processor_per_gb) {
    PLAIT_CHECK(options.device == "cpu", "--processor-per-gb ", *options.processor_per_gb,
                ": only --device cpu multiplies on the processor that works for the network, not ",
                options.device);
    machine.network.processor_ns_per_byte = *options.processor_per_gb;
  }
  return machine;
}

void check_rate_is_known(Dtype x, const predict::Machine& machine, const MachineOptions& options) {
  PLAIT_CHECK(x != Dtype::f32 || machine.device.name == "cpu" || options.rate,
              "--dtype f32: only the rate of bf16 and f16 is known for ", machine.device.name,
              "; give the rate of f32 with --rate");
}

predict::Problem OpPredictOptions::problem_of(const measure::OpSize& size) const {
  predict::Problem one = problem;
  one.m = size.m;
  one.n = size.n;
  one.k = size.k;
  if (op.exchange)
    one.exchange = {.family = op.exchange->family,
                    .product_first = op.exchange->product_first,
                    .columns = op.exchange->columns(size, machine.ranks)};
  return one;
}

std::optional<OpPredictOptions> read_op_predict_options(const MeasuredOperator& op, Words words) {
  const std::string verb = "predict " + word_of(op.name());
  OpPredictOptions what;
  what.op = op;
  SizeOptions sizes;
  DtypeOptions dtypes;
  Dtype wire = Dtype::f32;
  MachineOptions machine;
  PlanOptions plans;
  Options options({.verb = verb,
                   .usage = "--m M --n N --k K [OPTIONS]",
                   .purpose = kPurpose,
                   .examples = kExamples});
  add_options(options, sizes);
  add_options(options, dtypes);
  if (what.op.exchange && what.op.exchange->family == Family::ulysses) {
    add_heads_option(options, *what.op.exchange);
  } else if (!what.op.exchange) {
    options.add("--wire", wire_of(op.op), wire,
                "dtype in which partial sums are sent (default: f32)");
  }
  options.add("-w,--weight", kWeight, what.weight,
              "a dtype, or a scheme such as s8:channel; plain: x's dtype (default)");
  add_options(options, machine, "--ranks");
  add_options(options, plans);
  add_options(options, what.files);
  if (!options.parse_all(words)) return std::nullopt;
  what.sizes = read_sizes(sizes);
  if (what.weight.empty()) what.weight = name(dtypes.x);
  what.problem = {.op = op.op,
                  .x = dtypes.x,
                  .out = dtypes.result(),
                  .wire = wire,
                  .weight_bytes = weight_bytes(what.weight, dtypes.x)};
  what.machine = machine_of(machine);
  check_rate_is_known(dtypes.x, what.machine, machine);
  what.plans = op.exchange ? read_plans(*op.exchange, plans) : read_plans(op.op, plans);
  for (const measure::OpSize& size : what.sizes) static_cast<void>(what.problem_of(size));
  PLAIT_CHECK(what.sizes.size() == 1 || !what.files.traces(),
              "a timeline needs exactly one size, not ", what.sizes.size());
  PLAIT_CHECK(what.machine.ranks <= kMostDrawn || !what.files.traces(), "a timeline shows at most ",
              kMostDrawn, " ranks, not ", what.machine.ranks);
  check_distinct(what.files, {{"the shapes", sizes.shapes}});
  return what;
}

}  // namespace plait::cli
