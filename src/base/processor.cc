#include "base/processor.h"

#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>

#include "base/instruction_set.h"
#include "base/text.h"

namespace plait::base {
namespace {

// Oldest first. The kernel lists only features whose registers it saves when it switches between
// processes.
std::vector<std::string> features_of_interest(std::string_view machine) {
  if (machine == "x86_64")
    return {"avx2",        "fma",         "f16c",     "avx512f",  "avx512bw", "avx512_vnni",
            "avx512_bf16", "avx512_fp16", "avx_vnni", "amx_tile", "amx_bf16", "amx_int8"};
  if (machine == "aarch64")
    return {"asimd", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2", "svebf16", "sme"};
  return {};
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  return first == std::string_view::npos
             ? std::string_view()
             : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// The value of the first line "name : value". Processors of one host rarely differ.
std::string value_of(std::string_view cpuinfo, std::string_view name) {
  for (const auto line : split(cpuinfo, '\n')) {
    const auto colon = line.find(':');
    if (colon != std::string_view::npos && trimmed(line.substr(0, colon)) == name)
      return std::string(trimmed(line.substr(colon + 1)));
  }
  return {};
}

// "family 26, model 2, stepping 1": the numbers by which makers identify processors, as far as they
// are listed; x86's first, then ARM's.
std::string numbers_of(std::string_view cpuinfo) {
  struct Number {
    const char* word;
    const char* field;
  };
  constexpr std::array<Number, 6> kNumbers = {{{"family", "cpu family"},
                                               {"model", "model"},
                                               {"stepping", "stepping"},
                                               {"implementer", "CPU implementer"},
                                               {"part", "CPU part"},
                                               {"variant", "CPU variant"}}};
  std::string numbers;
  for (const auto& [word, field] : kNumbers) {
    const std::string value = value_of(cpuinfo, field);
    if (value.empty()) continue;
    if (!numbers.empty()) numbers += ", ";
    numbers.append(word).append(" ").append(value);
  }
  return numbers;
}

// Names alone don't suffice: virtual machines on different processors share a name, and ARM
// processors have none.
std::string model_of(std::string_view cpuinfo) {
  const std::string name = value_of(cpuinfo, "model name");
  const std::string numbers = numbers_of(cpuinfo);
  if (numbers.empty()) return name.empty() ? "unknown" : name;
  return name.empty() ? numbers : name + " (" + numbers + ")";
}

}  // namespace

Processor parse_processor(std::string_view cpuinfo, std::string_view machine) {
  Processor processor = {.model = model_of(cpuinfo), .features = {}};
  const std::string flags = value_of(cpuinfo, machine == "aarch64" ? "Features" : "flags");
  const auto present = split(flags, ' ');
  for (const std::string& feature : features_of_interest(machine)) {
    const bool there = std::find(present.begin(), present.end(), feature) != present.end();
    processor.features.emplace_back(feature, there);
  }
  return processor;
}

Processor read_processor() {
  utsname names = {};
  uname(&names);
  std::ifstream cpuinfo("/proc/cpuinfo");
  const std::string text(std::istreambuf_iterator<char>(cpuinfo), {});
  Processor processor = parse_processor(text, names.machine);
  processor.model += instruction_limit_note();
  return processor;
}

}  // namespace plait::base
