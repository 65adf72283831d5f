#include "gemm/panel_blocks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "gemm/matrix.h"

namespace plait::gemm {
namespace {

std::string pieces_of(const Depth& depth, std::int64_t step) {
  Cut cut;
  cut.make(depth, step);
  std::string text;
  for (std::int64_t i = 0; i < cut.size(); ++i) {
    for (const Piece& piece : cut.block(i).pieces) {
      text += std::to_string(piece.begin) + '+' + std::to_string(piece.length);
      text += std::string(piece.starts ? "s" : "") + (piece.ends ? "e " : " ");
    }
    text += '(' + std::to_string(cut.block(i).padded_length()) + ") ";
  }
  return text;
}

TEST(Cuts, HaveSeveralGroupsInABlockOrSeveralBlocksInAGroup) {
  EXPECT_EQ(pieces_of({.k = 600}, 256), "0+256s (256) 256+256 (256) 512+88e (96) ");
  EXPECT_EQ(pieces_of({.k = 600, .group = 128}, 256),
            "0+128se 128+128se (256) 256+128se 384+128se (256) 512+88se (96) ");
  EXPECT_EQ(pieces_of({.k = 700, .group = 300}, 256),
            "0+256s (256) 256+44e (64) 300+256s (256) 556+44e (64) 600+100se (128) ");
  EXPECT_EQ(pieces_of({.k = 90, .group = 33}, 64), "0+33se (64) 33+33se (64) 66+24se (32) ");
  EXPECT_EQ(pieces_of({.k = 5, .group = 100}, 256), "0+5se (32) ");
  EXPECT_EQ(pieces_of({.k = 0, .group = 100}, 256), "");
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
  Cut cut;
  cut.make(depth, 64);
  for (const std::int64_t parts : {1, 3, 100}) {
    for (const std::int64_t calls : {0, 1, 3, 200}) {
      const Buffer memory(PanelBlocks::bytes(source, cut.longest()));
      std::memset(memory.data(), 0xff, memory.bytes());
      PanelBlocks blocks(source, cut.longest(), memory.data());
      const auto is_there = [&](const PanelBlocks::Place& place, const std::byte* operand) {
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
      PanelBlocks::Place before = {};
      const std::byte* used = nullptr;
      for (std::int64_t i = 0; i < 2 * cut.size(); ++i) {
        const PanelBlocks::Place place = {.panel = i % 2, .block = cut.block(i / 2)};
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

}  // namespace
}  // namespace plait::gemm
