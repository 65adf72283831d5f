#include "plait/link.h"

#include <gtest/gtest.h>

#include <cmath>

#include "comm/environment.h"
#include "plait/communicator.h"
#include "plait/error.h"

namespace plait {
namespace {

TEST(Link, ReadsABandwidthALatencyOrBoth) {
  EXPECT_EQ(parse_link("25gbit,5us"), (Link{.bytes_per_second = 25e9 / 8, .latency_ns = 5000}));
  EXPECT_EQ(parse_link("5us,25gbit"), (Link{.bytes_per_second = 25e9 / 8, .latency_ns = 5000}));
  EXPECT_EQ(parse_link("3GB/s"), (Link{.bytes_per_second = 3e9, .latency_ns = 0}));
  EXPECT_EQ(parse_link("400mbit,1ms"),
            (Link{.bytes_per_second = 400e6 / 8, .latency_ns = 1'000'000}));
  EXPECT_EQ(parse_link("0.5gbit,0us"), (Link{.bytes_per_second = 0.5e9 / 8, .latency_ns = 0}));
  const Link latency = parse_link("7us");
  EXPECT_TRUE(std::isinf(latency.bytes_per_second));
  EXPECT_EQ(latency.latency_ns, 7000);
}

TEST(Link, IsWrittenAsItIsRead) {
  for (const char* text : {"25gbit,5us", "400mbit,1ms", "1.21gbit,0us", "7us", "3gbit,1500ns"})
    EXPECT_EQ(name(parse_link(text)), text);
  for (const double bytes : {1.0, 1.25, 1e9 / 3, 123456789.0, 3e14}) {
    const Link link = {.bytes_per_second = bytes, .latency_ns = 12'345};
    EXPECT_EQ(parse_link(name(link)), link) << name(link);
  }
}

TEST(Link, RefusesAnythingElse) {
  for (const char* text : {"",
                           ",",
                           "25gbit,",
                           ",5us",
                           "25gbit,5us,",
                           "25gbit,5us,1ms",
                           "25gbit,10gbit",
                           "5us,6us",
                           "25",
                           "25,5",
                           "25gbit,5",
                           "gbit",
                           "us",
                           "25gibt",
                           "25 gbit",
                           " 25gbit",
                           "25gbit ,5us",
                           "-25gbit",
                           "25gbit,-5us",
                           "0gbit",
                           "0gbit,5us",
                           "infgbit",
                           "nangbit",
                           "1e999gbit",
                           "fast",
                           "25gbit;5us",
                           "25gbit/5us",
                           "1e30h"}) {
    try {
      parse_link(text);
      ADD_FAILURE() << "took \"" << text << '"';
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      EXPECT_EQ(error.what(), "the link \"" + std::string(text) +
                                  "\" is not like \"25gbit,5us\": a bandwidth, a latency, or both");
    }
  }
}

TEST(Link, OfTheEnvironmentIsRefusedByTheVariablesName) {
  const Environment environment(Environment::Variables{{"PLAIT_LINK", "nonsense"}});
  try {
    run_in_threads(1, [](Communicator&) {});
    ADD_FAILURE() << "took it";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).rfind("PLAIT_LINK: the link \"nonsense\"", 0), 0U)
        << error.what();
  }
}

TEST(Link, SaysThatItIsEmulated) {
  EXPECT_EQ(describe(parse_link("25gbit,5us")), "emulated link, 25 Gbit/s, 5 us");
  EXPECT_EQ(describe(parse_link("5us")), "emulated link, 5 us");
}

TEST(Link, ComesFromTheEnvironmentUnlessTheCallerHasOne) {
  const Environment environment(Environment::Variables{{"PLAIT_LINK", "10gbit,20us"}});
  EXPECT_EQ(Communicator::connect().link(), parse_link("10gbit,20us"));
  EXPECT_EQ(Communicator::connect({.link = parse_link("1ms")}).link(), parse_link("1ms"));
  const Environment none;
  EXPECT_FALSE(Communicator::connect().link().has_value());
}

TEST(Link, RefusesAnImpossibleOneFromTheCaller) {
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
