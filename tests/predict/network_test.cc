#include "predict/network.h"

#include <gtest/gtest.h>

#include "tensor/sentence_of.h"

namespace plait::predict {
namespace {

TEST(Networks, AreFoundByName) {
  for (const NamedNetwork& one : networks()) {
    const Network network = find_network(one.name);
    EXPECT_EQ(network.link, one.network().link) << one.name;
    EXPECT_EQ(network.wiring, one.wiring) << one.name;
    EXPECT_LT(network.link.bytes_per_second, one.peak) << one.name;
  }
  EXPECT_EQ(find_network("nvlink4").link.bytes_per_second, 337.5e9);
}

// A name is the hardware with what it attains; a link is taken at its word.
TEST(Networks, AreLinksOtherwise) {
  EXPECT_EQ(find_network("100gbit").link.bytes_per_second, 0.9 * 12.5e9);
  const Network link = find_network("100gbit,5us");
  EXPECT_EQ(link.link, (Link{.bytes_per_second = 12.5e9, .latency_ns = 5000}));
  EXPECT_EQ(link.wiring, Wiring::ports);
}

TEST(Networks, ThatAreNeitherAreRefusedWithAllNames) {
  const std::string sentence = sentence_of([] { find_network("nvlink5"); });
  EXPECT_TRUE(sentence.starts_with("the link \"nvlink5\" is not like")) << sentence;
  EXPECT_TRUE(
      sentence.ends_with(", and not one of nvlink4, nvlink3, hccs, pcie5, pcie4, 400gbit, "
                         "100gbit, 25gbit"))
      << sentence;
}

TEST(Networks, SayWhatRanksShare) {
  EXPECT_EQ(describe(find_network("hccs")),
            "network: 21 GB/s each way between every two ranks, 5 us");
  EXPECT_EQ(describe(find_network("100gbit,0us")),
            "network: 12.5 GB/s each way out of and into every rank, 0 ns");
  Network between_hosts = find_network("2gbit,8us");
  between_hosts.processor_ns_per_byte = 0.45;
  EXPECT_EQ(describe(between_hosts),
            "network: 0.25 GB/s each way out of and into every rank, 8 us; 0.45 s of a rank's "
            "processor time for each GB that it sends or receives");
}

}  // namespace
}  // namespace plait::predict
