#include <gtest/gtest.h>

#include <cmath>

#include "comm/environment.h"
#include "plait/communicator.h"
#include "plait/error.h"
#include "plait/link.h"

namespace plait {
namespace {

TEST(CommunicatorsLink, OfTheEnvironmentIsRefusedByTheVariablesName) {
  const Environment environment(Environment::Variables{{"PLAIT_LINK", "nonsense"}});
  try {
    run_in_threads(1, [](Communicator&) {});
    ADD_FAILURE() << "took it";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).rfind("PLAIT_LINK: the link \"nonsense\"", 0), 0U)
        << error.what();
  }
}

TEST(CommunicatorsLink, ComesFromTheEnvironmentUnlessTheCallerHasOne) {
  const Environment environment(Environment::Variables{{"PLAIT_LINK", "10gbit,20us"}});
  EXPECT_EQ(Communicator::connect().link(), parse_link("10gbit,20us"));
  EXPECT_EQ(Communicator::connect({.link = parse_link("1ms")}).link(), parse_link("1ms"));
  const Environment none;
  EXPECT_FALSE(Communicator::connect().link().has_value());
}

TEST(CommunicatorsLink, RefusesAnImpossibleOneFromTheCaller) {
  const auto refusal = [](const Link& link) {
    try {
      Communicator::connect({.link = link});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      return std::string(error.what());
    }
    return std::string("taken");
  };
  const std::string limits = "; it takes 1 byte/s at least, and an hour's latency at most";
  const Environment environment;
  EXPECT_EQ(refusal({.bytes_per_second = 0}), "connect: a link of 0 bytes/s and 0 ns" + limits);
  EXPECT_EQ(refusal({.bytes_per_second = -1}), "connect: a link of -1 bytes/s and 0 ns" + limits);
  EXPECT_EQ(refusal({.bytes_per_second = 1, .latency_ns = -5}),
            "connect: a link of 1 bytes/s and -5 ns" + limits);
  EXPECT_EQ(refusal({.bytes_per_second = std::nan("")}),
            "connect: a link of nan bytes/s and 0 ns" + limits);
  EXPECT_EQ(refusal({.bytes_per_second = 1e-300}),
            "connect: a link of 1e-300 bytes/s and 0 ns" + limits);
  EXPECT_EQ(refusal({.bytes_per_second = 1e9, .latency_ns = INT64_MAX}),
            "connect: a link of 1e+09 bytes/s and 9223372036854775807 ns" + limits);
  EXPECT_EQ(refusal({.bytes_per_second = 1, .latency_ns = 3'600'000'000'000}), "taken");
  const Environment slow(Environment::Variables{{"PLAIT_LINK", "10gbit,2h"}});
  EXPECT_THROW(Communicator::connect(), Error);
}

}  // namespace
}  // namespace plait
