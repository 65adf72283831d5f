#include "trace/pack.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "tensor/sentence_of.h"
#include "timeline.h"

namespace plait::trace {
namespace {

std::string refusal(const std::vector<std::byte>& bytes) {
  return sentence_of([&] { unpack(bytes); });
}

TEST(Pack, ComesBackAsItWas) {
  const RankRecords all = made_up(5);
  const RankRecords back = unpack(pack(all));
  EXPECT_EQ(back.rank, 5);
  EXPECT_EQ(back.dropped, 3);
  EXPECT_EQ(back.uncertainty, 250);
  EXPECT_EQ(back.labels, all.labels);
  EXPECT_EQ(back.records.size(), all.records.size());
  EXPECT_EQ(pack(back), pack(all));
  EXPECT_EQ(back.records[0].args.flops, 1LL << 40);
  EXPECT_EQ(back.records[7].thread, 1);
}

TEST(Pack, NothingIsSomething) { EXPECT_EQ(unpack(pack({})).records.size(), 0); }

TEST(Pack, EveryCutIsRefused) {
  auto bytes = pack(made_up(0));
  while (!bytes.empty()) {
    bytes.pop_back();
    EXPECT_NE(refusal(bytes), "nothing was refused") << bytes.size();
  }
}

TEST(Pack, EveryFlippedBitIsRefused) {
  auto bytes = pack(made_up(0));
  for (std::byte& byte : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      byte ^= std::byte(1 << bit);
      EXPECT_NE(refusal(bytes), "nothing was refused");
      byte ^= std::byte(1 << bit);
    }
  }
  bytes.push_back(std::byte{0});
  EXPECT_NE(refusal(bytes), "nothing was refused");
}

TEST(Pack, RefusalsAreSentences) {
  EXPECT_EQ(refusal(std::vector<std::byte>(100)),
            "trace: these bytes are not a pack, or another version of plait made them");
  auto bytes = pack(made_up(0));
  bytes[60] ^= std::byte{1};
  EXPECT_EQ(refusal(bytes), "trace: the pack is damaged (its checksum is wrong)");
  bytes.resize(20);
  EXPECT_EQ(refusal(bytes), "trace: the pack is damaged (it ends too early)");
}

// Damage that the checksum does not show must be refused, or give a timeline that can be written.
TEST(Pack, SealedNonsenseDoesNoHarm) {
  const auto good = pack(made_up(1));
  const Folder folder;
  std::mt19937 random(20240229);
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    auto bytes = good;
    for (unsigned changes = random() % 4 + 1; changes > 0; --changes) {
      // After the magic number, which would end the test at once.
      auto& byte = bytes[8 + random() % (bytes.size() - 8)];
      byte = random() % 2 == 0 ? byte ^ std::byte(1U << random() % 8) : std::byte(random());
    }
    if (random() % 8 == 0) bytes.resize(24 + random() % (bytes.size() - 24));
    seal(bytes);
    if (refusal(bytes) == "nothing was refused") {
      ++accepted;
      if (accepted % 8 == 0) {
        const std::string path = folder / "timeline.json";
        plait::write_json(path, std::array{bytes});
        EXPECT_NO_THROW(parse(path));
      }
    }
  }
  EXPECT_GT(accepted, 100);  // the interesting half: accepted packs
}

}  // namespace
}  // namespace plait::trace
