// The sizes of a W8A16 kernel, and the steps in which it goes through k.
//
// All of it is known to the compiler: the registers and shared memory of a kernel follow from its
// Config, and each Step is code of its own, with constant indices.
#pragma once

#include "gpu/w8/w8_layout.h"
#include "gpu/w8/w8_ptx.cuh"

namespace plait::gpu::w8 {

inline constexpr int kWarpgroup = 128;

// In_: __nv_bfloat16 or __half. Group: 0 or 32, 64, 128, 256. Each of Warpgroups consumers has
// Blocks blocks of 64 features and all Tokens of a tile.
template <class In_, int Group, int Warpgroups, int Blocks, int Tokens, int StageChunks, int Stages,
          int PerSm>
struct Config {
  using In = In_;
  static constexpr int kGroup = Group;
  static constexpr bool kGrouped = Group != 0;
  static constexpr int kWarpgroups = Warpgroups;
  static constexpr int kBlocks = Blocks;
  static constexpr int kTileBlocks = Warpgroups * Blocks;
  static constexpr int kTokens = Tokens;
  static constexpr int kSums = Tokens / 2;  // of a thread and block
  static constexpr int kStages = Stages;
  static constexpr int kStageChunks = StageChunks;
  static constexpr int kStageK = StageChunks * kChunk;

  // Large tiles need more registers than all threads could have: the producer gives up its own.
  static constexpr bool kMovesRegisters = Warpgroups == 2;
  static constexpr int kThreads = Warpgroups * kWarpgroup + (kMovesRegisters ? kWarpgroup : 32);
  static constexpr int kPerSm = PerSm;

  static constexpr int kRecord = record_bytes(Group);
  static constexpr int kBoxBytes = Tokens * kChunk * 2;
  static constexpr int kRowsBytes = kBoxBytes * StageChunks;      // of a stage
  static constexpr int kBlockBytes = kRecord * StageChunks;       // of a stage and block
  static constexpr int kWeightBytes = kBlockBytes * kTileBlocks;  // of a stage
  static constexpr int kBarriersBytes = 2 * Stages * w8::kBarrierBytes;
  static constexpr int kSharedBytes = 1024 + Stages * (kRowsBytes + kWeightBytes) + kBarriersBytes;

  // A round is a list of steps. Spans of k follow one another; within a span, each block goes
  // through its steps. A grouped weight's span is a group, after which its chain is added.
  // A round is as short as whole stages, whole spans and an even number of steps allow.
  static constexpr int kSpanK = kGrouped ? Group : kChunk;
  static constexpr int kStepK = Group == 32 || (kGrouped && Blocks == 2) ? 32 : kChunk;
  static constexpr int kSpanSteps = kSpanK / kStepK;
  static constexpr int kLeastK = kSpanK > kStageK ? kSpanK : kStageK;
  static constexpr int kRoundK = kLeastK / kStepK * Blocks % 2 == 0 ? kLeastK : 2 * kLeastK;
  static constexpr int kRoundStages = kRoundK / kStageK;
  static constexpr int kSteps = kRoundK / kStepK * Blocks;

  static_assert(kSteps % 2 == 0, "operands of two steps alternate");
  static_assert(chunks_of_round(Group) * kChunk % kRoundK == 0, "k is padded to whole rounds");
  static_assert(Stages >= kRoundStages + 1, "a span's stages are held until its last block");
};

// Step s of a round; s may run into the next round.
template <class C, int s>
struct Step {
  static constexpr int kInRound = s % C::kSteps;
  static constexpr int kInSpan = kInRound % (C::kBlocks * C::kSpanSteps);
  static constexpr int kBlock = kInSpan / C::kSpanSteps;
  static constexpr int kPlace = kInSpan % C::kSpanSteps;
  static constexpr int kRoundPlace =
      kInRound / (C::kBlocks * C::kSpanSteps) * C::kSpanK + kPlace * C::kStepK;  // k in the round
  static constexpr int kStage = s / C::kSteps * C::kRoundStages + kRoundPlace / C::kStageK;
  static constexpr int kStagePlace = kRoundPlace % C::kStageK;  // k in the stage
  static constexpr int kOperand = s % 2;
  static constexpr bool kEndsSpan = kPlace == C::kSpanSteps - 1;
  static constexpr bool kOpensStage = kBlock == 0 && kStagePlace == 0;
  static constexpr bool kClosesStage =
      kBlock == C::kBlocks - 1 && kStagePlace + C::kStepK == C::kStageK;
};

}  // namespace plait::gpu::w8
