#include "cli/predict/options.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "cli/op_sizes.h"
#include "cli/options.h"
#include "cli/values.h"
#include "plait/quantized.h"

namespace plait::cli {
namespace {

constexpr std::int64_t kMostDrawn = 64;

constexpr const char* kPurpose =
    "Predicts an operator on other devices and networks. Modelled ranks with simulated clocks run\n"
    "its own schedules; products, copies and sums take the device's time, and chunks travel over "
    "a\n"
    "modelled network. Nothing is measured or multiplied.";

constexpr const char* kExamples =
    "Exit status: 0 done; 1 a file can't be written; 2 wrong usage.\n\n"
    "Examples:\n"
    "  plait predict matmul-all-reduce --m 4096 --n 8192 --k 8192 --device h100 --link nvlink4\n"
    "  plait predict all-gather-matmul --m 8192 --n 8192 --k 8192 --device a100 --link pcie4\n"
    "  plait predict matmul-reduce-scatter --m 8192 --n 8192 --k 8192 --plan \"fused chunk=512\"\n";

// The arguments as typed.
struct Args {
  SizeWords size = {};
  std::string x = "bf16";
  std::string out = {};
  std::string wire = {};
  std::string weight = {};
  MachineWords machine = {};
  PlanWords plan = {};
  OutputFiles files = {};
};

std::string device_names() {
  std::string names;
  for (const predict::Device& device : predict::devices())
    names += (names.empty() ? "" : ", ") + device.name;
  return names;
}

std::string network_names() {
  std::string names;
  for (const predict::NamedNetwork& network : predict::networks())
    names += (names.empty() ? "" : ", ") + std::string(network.name);
  return names;
}

double read_rate(std::string_view option, const std::string& text) {
  constexpr double kLeast = 1e-3;
  constexpr double kMost = 1e6;
  const auto number = base::parse_number(text);
  PLAIT_CHECK(number && *number >= kLeast && *number <= kMost, option, ' ', text,
              " is not a number from ", kLeast, " to ", kMost);
  return *number;
}

predict::Wiring read_wiring(const std::string& text) {
  for (const auto wiring :
       {predict::Wiring::pairs, predict::Wiring::ports, predict::Wiring::shared}) {
    if (text == comm::modelled::name(wiring)) return wiring;
  }
  base::fail(Code::invalid_argument, "--wiring ", text, " is none of pairs, ports, shared");
}

// The usual network of a device.
std::string usual_link(const std::string& device) {
  if (device == "a100") return "nvlink3";
  if (device == "ascend-910b") return "hccs";
  PLAIT_CHECK(device != "cpu",
              "the device cpu has no usual network; give one, such as --link 25gbit,5us");
  return "nvlink4";
}

double weight_bytes(const std::string& weight, Dtype x) {
  if (weight.empty() || weight == "plain") return static_cast<double>(size_of(x));
  check_weight_kind(weight);
  if (const auto scheme = parse_quant_scheme(weight)) return scheme->bits / 8.0;
  return static_cast<double>(size_of(read_dtype("--weight", weight)));
}

OpPredictOptions understand(Operator op, const Args& args) {
  OpPredictOptions options;
  options.sizes = read_sizes(args.size);
  const Dtype x = read_dtype("--dtype", args.x);
  options.problem = {.op = op,
                     .m = 0,
                     .n = 0,
                     .k = 0,
                     .x = x,
                     .out = args.out.empty() ? x : read_dtype("--out", args.out),
                     .wire = read_wire(op, args.wire),
                     .weight_bytes = weight_bytes(args.weight, x)};
  options.weight = args.weight.empty() ? std::string(name(x)) : args.weight;
  options.machine = read_machine(args.machine, "--ranks");
  PLAIT_CHECK(x != Dtype::f32 || options.machine.device.name == "cpu" || !args.machine.rate.empty(),
              "--dtype f32: only the rate of bf16 and f16 is known for ",
              options.machine.device.name, "; give the rate of f32 with --rate");
  options.plans = read_plans(op, args.plan);
  options.files = args.files;
  PLAIT_CHECK(options.sizes.size() == 1 || !options.files.traces(),
              "a timeline needs exactly one size, not ", options.sizes.size());
  PLAIT_CHECK(options.machine.ranks <= kMostDrawn || !options.files.traces(),
              "a timeline shows at most ", kMostDrawn, " ranks, not ", options.machine.ranks);
  check_distinct(options.files, {{"the shapes", args.size.shapes}});
  return options;
}

}  // namespace

void add_options(Options& options, MachineWords& words, const char* ranks) {
  options.add(ranks, "N", words.ranks, "number of ranks (default: 8)");
  options.add("--device", "NAME", words.device,
              "device of each rank (default: h100): " + device_names());
  options.add("-l,--link", "LINK", words.link,
              network_names() +
                  ",\nor one port per rank, such as 25gbit,5us\n"
                  "(default: the device's usual network)");
  options.add("--wiring", "WIRING", words.wiring,
              "what the link's bandwidth and latency belong to: pairs (of ranks), ports\n"
              "(of each rank) or shared (by all ranks); default: that of the network");
  options.add("--rate", "TFLOPS", words.rate,
              "attained TFLOP/s of products (default: the device's)");
  options.add("--memory", "GBS", words.memory,
              "attained GB/s of copies and sums (default: the device's)");
  options.add("--lost", "PERCENT", words.lost,
              "loss of the rate while chunks are sent (default: the device's)");
}

predict::Machine read_machine(const MachineWords& words, const char* ranks) {
  predict::Machine machine = {
      .device = predict::find_device(words.device),
      .network = predict::find_network(words.link.empty() ? usual_link(words.device) : words.link),
      .ranks = static_cast<int>(read_number(ranks, words.ranks, 1, kMostPredictedRanks))};
  if (!words.wiring.empty()) machine.network.wiring = read_wiring(words.wiring);
  if (!words.rate.empty()) {
    machine.device.peak_flops = read_rate("--rate", words.rate) * 1e12;
    machine.device.attained = 1;
  }
  if (!words.memory.empty()) {
    machine.device.peak_memory = read_rate("--memory", words.memory) * 1e9;
    machine.device.memory_share = 1;
  }
  if (!words.lost.empty())
    machine.device.lost = static_cast<double>(read_number("--lost", words.lost, 0, 99)) / 100;
  return machine;
}

std::optional<OpPredictOptions> read_op_predict_options(Operator op, Words words) {
  std::string verb("predict ");
  verb += name(op);
  std::replace(verb.begin(), verb.end(), '_', '-');
  Args args;
  Options options({.verb = verb,
                   .usage = "--m M --n N --k K [OPTIONS]",
                   .purpose = kPurpose,
                   .examples = kExamples});
  add_options(options, args.size);
  options.add("-d,--dtype", "DTYPE", args.x, "dtype of x: f32, bf16 (default) or f16");
  options.add("-o,--out", "DTYPE", args.out, "dtype of the result (default: that of x)");
  options.add("--wire", "DTYPE", args.wire, "dtype in which partial sums are sent (default: f32)");
  options.add("-w,--weight", "KIND", args.weight,
              "a dtype, or a scheme such as s8:channel; plain: x's dtype (default)");
  add_options(options, args.machine, "--ranks");
  add_options(options, args.plan);
  add_options(options, args.files);
  if (!options.parse_all(words)) return std::nullopt;
  return understand(op, args);
}

}  // namespace plait::cli
