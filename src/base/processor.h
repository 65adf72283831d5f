// Properties of the processor that matter to a matrix product.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plait::base {

struct Processor {
  // The name and the maker's numbers: "AMD EPYC (family 26, model 2, stepping 1)". read_processor()
  // appends PLAIT_ISA's limit if there is one, because the same processor has other times with
  // fewer instructions.
  std::string model;
  std::vector<std::pair<std::string, bool>> features;  // the kernel's names; true: present
};

// Parses the text of /proc/cpuinfo. `machine` is uname's name of the architecture ("x86_64",
// "aarch64").
Processor parse_processor(std::string_view cpuinfo, std::string_view machine);

// The processor of this host, as far as kernels may use it (base/instruction_set.h).
Processor read_processor();

}  // namespace plait::base
