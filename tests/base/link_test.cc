#include "plait/link.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tensor/sentence_of.h"

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
    EXPECT_EQ(sentence_of([&] { parse_link(text); }),
              "the link \"" + std::string(text) +
                  "\" is not like \"25gbit,5us\": a bandwidth, a latency, or both");
  }
}

TEST(Link, SaysThatItIsEmulated) {
  EXPECT_EQ(describe(parse_link("25gbit,5us")), "emulated link, 25 Gbit/s, 5 us");
  EXPECT_EQ(describe(parse_link("5us")), "emulated link, 5 us");
}

}  // namespace
}  // namespace plait
