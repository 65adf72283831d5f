// What the processor can do that matters to a matrix product.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plait::base {

struct Processor {
  // By name, and by what its maker numbers it by: "AMD EPYC (family 26, model 2, stepping 1)".
  // read_processor() adds the limit where PLAIT_ISA sets one: times of the same processor without
  // it are others.
  std::string model;
  std::vector<std::pair<std::string, bool>> features;  // by the kernel's names; true: present
};

// From the text of /proc/cpuinfo, on a machine that uname calls so ("x86_64", "aarch64").
Processor parse_processor(std::string_view cpuinfo, std::string_view machine);

// This one, as far as kernels may use it (base/instruction_set.h).
Processor read_processor();

}  // namespace plait::base
