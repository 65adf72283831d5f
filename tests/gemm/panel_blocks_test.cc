#include "gemm/panel_blocks.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "gemm/matrix.h"

namespace plait::gemm {
namespace {

std::string pieces_of(const Depth& depth, std::int64_t step, std::int64_t shares = 1) {
  DepthBlocks cut;
  const Leaves leaves(depth, shares);
  cut.make(depth, leaves, step);
  std::string text;
  for (std::int64_t i = 0; i < cut.size(); ++i) {
    for (const Piece& piece : cut.block(i).pieces) {
      text += std::to_string(piece.begin) + '+' + std::to_string(piece.length);
      text += std::string(piece.starts ? "s" : "") + (piece.ends ? "e" : "");
      if (piece.begin == leaves.begin(piece.leaf)) text += '[';
      if (piece.ends_leaf) text += ']';
      text += ' ';
    }
    text += '(' + std::to_string(cut.block(i).padded_length()) + ") ";
  }
  return text;
}

TEST(Cuts, HaveSeveralGroupsInABlockOrSeveralBlocksInAGroup) {
  EXPECT_EQ(pieces_of({.k = 600}, 256), "0+256s[ (256) 256+344e] (352) ");
  EXPECT_EQ(pieces_of({.k = 600, .group = 128}, 256),
            "0+128se[ 128+128se (256) 256+128se 384+128se (256) 512+88se] (96) ");
  EXPECT_EQ(pieces_of({.k = 700, .group = 300}, 256),
            "0+256s[ (256) 256+44e (64) 300+256s (256) 556+44e (64) 600+100se] (128) ");
  EXPECT_EQ(pieces_of({.k = 90, .group = 33}, 64), "0+33se[ (64) 33+33se (64) 66+24se] (32) ");
  EXPECT_EQ(pieces_of({.k = 5, .group = 100}, 256), "0+5se[] (32) ");
  EXPECT_EQ(pieces_of({.k = 0, .group = 100}, 256), "");
}

TEST(Cuts, EndWithLeavesAndAtMultiplesOfTheStep) {
  // Two leaves of 736; what is left at their ends is 224 and 32, then 192.
  EXPECT_EQ(pieces_of({.k = 1472}, 256),
            "0+256s[ (256) 256+256 (256) 512+224e] (224) 736+288s[ (288) 1024+256 (256) "
            "1280+192e] (192) ");
  EXPECT_EQ(pieces_of({.k = 1100}, 256, 2), pieces_of({.k = 1100}, 256))
      << "1100 is no multiple of 32: no node";
  EXPECT_EQ(pieces_of({.k = 512}, 256, 2), "0+256s[ (256) 256+256e] (256) ");
  // All k at once, for few rows; the last leaf takes what 32 doesn't divide.
  EXPECT_EQ(pieces_of({.k = 1100}, 1120), "0+544se[] 544+556se[] (1120) ");
  EXPECT_EQ(pieces_of({.k = 1100, .group = 128}, 256),
            "0+128se[ 128+128se (256) 256+128se 384+128se] (256) 512+128se[ 640+128se (256) "
            "768+128se 896+128se (256) 1024+76se] (96) ");
}

TEST(Leaves, FollowFromKAlone) {
  const auto edges = [](const Depth& depth, std::int64_t shares = 1) {
    const Leaves leaves(depth, shares);
    std::vector<std::int64_t> all;
    for (std::int64_t leaf = 1; leaf <= leaves.count(); ++leaf) all.push_back(leaves.begin(leaf));
    return all;
  };
  using Edges = std::vector<std::int64_t>;
  EXPECT_EQ(edges({.k = 0}), Edges({0}));
  EXPECT_EQ(edges({.k = 1023}), Edges({1023}));
  EXPECT_EQ(edges({.k = 1024}), Edges({512, 1024}));
  EXPECT_EQ(edges({.k = 2047}).size(), 2U);
  EXPECT_EQ(edges({.k = 2048}).size(), 4U);
  EXPECT_EQ(edges({.k = 4096}).size(), 8U);
  EXPECT_EQ(edges({.k = 16383}).size(), 8U);
  EXPECT_EQ(edges({.k = 16384}).size(), 16U);
  EXPECT_EQ(edges({.k = 5000}), Edges({608, 1248, 1856, 2496, 3104, 3744, 4352, 5000}));
  // Groups are never cut; where they are long there are fewer leaves.
  EXPECT_EQ(edges({.k = 2100, .group = 100}), Edges({500, 1000, 1500, 2100}));
  EXPECT_EQ(edges({.k = 2100, .group = 1000}), Edges({1000, 2100}));
  EXPECT_EQ(edges({.k = 2100, .group = 3000}), Edges({2100}));
}

TEST(Leaves, OfEqualSharesAreThoseOfTheWhole) {
  int nodes = 0;
  for (const std::int64_t group : {0, 64, 100, 128}) {
    for (std::int64_t k = 32; k <= 4096; k += group == 100 ? 100 : 32) {
      for (const std::int64_t shares : {2, 3, 4, 8, 16}) {
        const Depth share = {.k = k, .group = group};
        if (!are_nodes(share, shares)) continue;
        ++nodes;
        const Leaves whole(Depth{.k = k * shares, .group = group});
        const Leaves part(share, shares);
        ASSERT_EQ(whole.count(), part.count() * shares);
        for (std::int64_t leaf = 0; leaf < whole.count(); ++leaf) {
          ASSERT_EQ(whole.begin(leaf), leaf / part.count() * k + part.begin(leaf % part.count()))
              << k << " x " << shares << ", groups of " << group;
        }
      }
    }
  }
  EXPECT_GT(nodes, 500);
  EXPECT_FALSE(are_nodes({.k = 4096}, 3));
  EXPECT_FALSE(are_nodes({.k = 496}, 2)) << "shorter than a leaf";
  EXPECT_FALSE(are_nodes({.k = 1000}, 4)) << "no multiple of 32";
  EXPECT_FALSE(are_nodes({.k = 11008 / 4, .group = 128}, 4)) << "cuts a group";
  EXPECT_TRUE(are_nodes({.k = 11008 / 2, .group = 128}, 2));
}

// Blocks of f16, widened in any number of parts, while the one before is still used.
TEST(PanelBlocks, AreWholeHoweverOftenTheyAreAdvanced) {
  constexpr std::int64_t kK = 200;
  const Matrix w(Dtype::f16, kK, 2 * kPanelColumns, 6);
  const Depth depth = {.k = kK};
  const std::size_t one = panel_bytes(Storage::f16, depth.padded());
  const Buffer panels(2 * one);
  for (const std::int64_t p : {0, 1})
    pack_panel({w.view, WeightLayout::in_out}, {.panel = p, .begin = 0, .length = kK},
               panels.data() + static_cast<std::size_t>(p) * one);
  const PanelSource source = {.packed = nullptr,
                              .storage = Storage::f16,
                              .operand = Dtype::f32,
                              .panels = panels.data(),
                              .first_panel = 0,
                              .k = {0, depth.padded()}};
  DepthBlocks cut;
  cut.make(depth, Leaves(depth), 64);
  for (const std::int64_t parts : {1, 3, 100}) {
    for (const std::int64_t calls : {0, 1, 3, 200}) {
      const Buffer memory(PanelBlocks::bytes(source, cut.longest()));
      std::memset(memory.data(), 0xff, memory.bytes());
      PanelBlocks blocks(source, cut.longest(), memory.data());
      const auto is_there = [&](const PanelBlocks::Index& place, const std::byte* operand) {
        const auto* values = reinterpret_cast<const float*>(operand);
        for (std::int64_t k = 0; k < place.block.padded_length(); ++k) {
          const std::int64_t row = place.block.padded_begin() + k;
          for (std::int64_t j = 0; j < kPanelColumns; ++j) {
            const double want = row < kK ? at(w.view, row, place.panel * kPanelColumns + j) : 0;
            if (values[k * kPanelColumns + j] != want) return false;
          }
        }
        return true;
      };
      PanelBlocks::Index before = {};
      const std::byte* used = nullptr;
      for (std::int64_t i = 0; i < 2 * cut.size(); ++i) {
        const PanelBlocks::Index place = {.panel = i % 2, .block = cut.block(i / 2)};
        if (i > 0) {
          blocks.begin(place, parts);
          for (std::int64_t call = 0; call < calls; ++call) blocks.advance();
          EXPECT_TRUE(is_there(before, used)) << "block " << i - 1;
        }
        used = blocks.ready(place);
        before = place;
        EXPECT_TRUE(is_there(place, used))
            << "block " << i << ", parts " << parts << ", calls " << calls;
      }
    }
  }
}

TEST(AheadRows, ArePartedWithoutAGap) {
  const std::array<std::byte, 1> place = {};
  const AheadRows all = {.first = place.data(), .stride = 0, .bytes = 1, .rows = 7};
  for (const std::int64_t parts : {1, 2, 3, 11}) {
    std::int64_t rows = 0;
    for (std::int64_t part = 0; part < parts; ++part) rows += part_of(all, part, parts).rows;
    EXPECT_EQ(rows, all.rows) << parts;
  }
  EXPECT_EQ(part_of({}, 1, 2).rows, 0);
}

}  // namespace
}  // namespace plait::gemm
