// All operators, for tests that are about each of them.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plait/operator.h"

namespace plait {

inline std::vector<Operator> operators(bool (*are_wanted)(const OperatorTraits&)) {
  std::vector<Operator> wanted;
  for (int i = 0; i < kOperators; ++i) {
    const auto op = static_cast<Operator>(i);
    if (are_wanted(traits_of(op))) wanted.push_back(op);
  }
  return wanted;
}

inline std::vector<Operator> every_operator() {
  return operators([](const OperatorTraits&) { return true; });
}
inline std::vector<Operator> communicating_operators() {
  return operators([](const OperatorTraits& traits) { return traits.communicates(); });
}

inline std::string operator_name(const testing::TestParamInfo<Operator>& info) {
  return std::string(name(info.param));
}

}  // namespace plait
