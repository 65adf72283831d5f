#include "cli/predict/options.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "cli/bench/op_sizes.h"
#include "cli/options.h"
#include "cli/values.h"
#include "plait/quantized.h"

namespace plait::cli {
namespace {

constexpr std::int64_t kMostDrawn = 64;

constexpr const char* kPurpose =
    "Predicts an operator on devices that are not here: its own schedules, played by modelled\n"
    "ranks on a clock of their own, whose products, copies and sums take a device's time and\n"
    "whose chunks travel a modelled network. Nothing is measured, and nothing is multiplied.";

constexpr const char* kExamples =
    "Exit status: 0; 1 when a file can't be written; 2 for wrong usage.\n\n"
    "Examples:\n"
    "  plait predict matmul-all-reduce --m 4096 --n 8192 --k 8192 --device h100 --link nvlink4\n"
    "  plait predict all-gather-matmul --m 8192 --n 8192 --k 8192 --device a100 --link pcie4\n"
    "  plait predict matmul-reduce-scatter --m 8192 --n 8192 --k 8192 --plan \"fused chunk=512\"\n";

// As typed.
struct Wishes {
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
              " is no number from ", kLeast, " to ", kMost);
  return *number;
}

predict::Wiring read_wiring(const std::string& text) {
  for (const auto wiring :
       {predict::Wiring::pairs, predict::Wiring::ports, predict::Wiring::shared}) {
    if (text == comm::modelled::name(wiring)) return wiring;
  }
  base::fail(Code::invalid_argument, "--wiring ", text, " is none of pairs, ports and shared");
}

// Which network a device usually has.
std::string usual_link(const std::string& device) {
  if (device == "a100") return "nvlink3";
  if (device == "ascend-910b") return "hccs";
  PLAIT_CHECK(device != "cpu", "a processor has no usual network: say --link, such as 25gbit,5us");
  return "nvlink4";
}

double weight_bytes(const std::string& weight, Dtype x) {
  if (weight.empty() || weight == "plain") return static_cast<double>(size_of(x));
  check_weight_kind(weight);
  if (const auto scheme = parse_quant_scheme(weight)) return scheme->bits / 8.0;
  return static_cast<double>(size_of(read_dtype("--weight", weight)));
}

OpPredictOptions understand(Operator op, const Wishes& wishes) {
  OpPredictOptions options;
  options.sizes = read_sizes(wishes.size);
  const Dtype x = read_dtype("--dtype", wishes.x);
  options.problem = {.op = op,
                     .m = 0,
                     .n = 0,
                     .k = 0,
                     .x = x,
                     .out = wishes.out.empty() ? x : read_dtype("--out", wishes.out),
                     .wire = read_wire(op, wishes.wire),
                     .weight_bytes = weight_bytes(wishes.weight, x)};
  options.weight = wishes.weight.empty() ? std::string(name(x)) : wishes.weight;
  options.machine = read_machine(wishes.machine, "--ranks");
  PLAIT_CHECK(
      x != Dtype::f32 || options.machine.device.name == "cpu" || !wishes.machine.rate.empty(),
      "--dtype f32: what is known of ", options.machine.device.name,
      " is how fast it multiplies bf16 and f16; --rate says another rate");
  options.plans = read_plans(op, wishes.plan);
  options.files = wishes.files;
  PLAIT_CHECK(options.sizes.size() == 1 || !options.files.traces(),
              "a timeline is of one size, not of ", options.sizes.size());
  PLAIT_CHECK(options.machine.ranks <= kMostDrawn || !options.files.traces(), "a timeline is of ",
              kMostDrawn, " ranks at most, not of ", options.machine.ranks);
  check_distinct(options.files, {{"the shapes", wishes.size.shapes}});
  return options;
}

}  // namespace

void add_options(Options& options, MachineWords& words, const char* ranks) {
  options.add(ranks, "N", words.ranks, "how many ranks (default: 8)");
  options.add("--device", "NAME", words.device,
              "what each rank has (default: h100): " + device_names());
  options.add("-l,--link", "LINK", words.link,
              network_names() +
                  ",\nor a port of each rank's such as 25gbit,5us\n"
                  "(default: the device's usual one)");
  options.add("--wiring", "WIRING", words.wiring,
              "what the link's figures are of: pairs (of ranks), ports (of\n"
              "each rank), shared (by all); default: the network's own");
  options.add("--rate", "TFLOPS", words.rate, "of products, attained (default: the device's)");
  options.add("--memory", "GBS", words.memory,
              "GB/s of copies and sums, attained (default: the device's)");
  options.add("--lost", "PERCENT", words.lost,
              "of the rate while chunks travel (default: the device's)");
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
  Wishes wishes;
  Options options({.verb = verb,
                   .usage = "--m M --n N --k K [OPTIONS]",
                   .purpose = kPurpose,
                   .examples = kExamples});
  add_options(options, wishes.size);
  options.add("-d,--dtype", "DTYPE", wishes.x, "of x: f32, bf16 (the default) or f16");
  options.add("-o,--out", "DTYPE", wishes.out, "of the result (default: that of x)");
  options.add("--wire", "DTYPE", wishes.wire, "in what partial sums travel (default: f32)");
  options.add("-w,--weight", "KIND", wishes.weight,
              "a dtype, or a scheme such as s8:channel; plain: x's dtype (the default)");
  add_options(options, wishes.machine, "--ranks");
  add_options(options, wishes.plan);
  add_options(options, wishes.files);
  if (!options.parse_all(words)) return std::nullopt;
  return understand(op, wishes);
}

}  // namespace plait::cli
