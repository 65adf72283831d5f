// One product, run by a tile kernel: who works on what, in which order, and where it is kept.
//
// Rows of X are packed first, a superblock at a time (unless a kernel can read them in place). Then
// the superblock's jobs, each some rows by some panels, are handed out to the threads. In a job
// k advances in blocks; a block of a panel is made ready once, and stays in the first cache while
// the job's rows pass by. When k has come to its end, the tiles go out.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "gemm/depth.h"
#include "gemm/kernel.h"
#include "gemm/loops.h"
#include "gemm/panels.h"
#include "gemm/rows.h"
#include "plait/buffer.h"
#include "plait/gemm.h"

namespace plait::gemm {

// The memory that products work in; it grows, and is kept from one to the next.
class Workspace {
 public:
  static std::byte* at_least(Buffer& buffer, std::size_t bytes);

  struct Thread {
    Buffer sums;
    Buffer block;
  };

  Buffer rows;
  Buffer panels;
  Buffer bias;
  std::vector<Thread> threads;
};

// A call whose ranges and views have been checked.
struct Task {
  const GemmCall& call;
  Range rows;
  Range columns;
  Depth depth;
  const float* bias;  // of all columns, padded to whole panels; nullptr: none
  int threads;
};

class Product {
 public:
  Product(const TileKernel& kernel, const Task& task, Workspace& workspace);

  void run();

 private:
  struct Job {
    Range rows;
    Range panels;
  };
  struct Block {
    std::int64_t begin;         // of k
    std::int64_t length;        // without padding
    std::int64_t padded_begin;  // where rows and panels have it
    bool first;
    bool last;
  };

  void run_superblock(Range rows);
  void pack_superblock(Range rows);
  std::vector<Job> jobs_of(Range rows) const;
  void run_job(const Job& job, Workspace::Thread& memory);
  void run_block(const Job& job, std::int64_t panel, const Block& block, Workspace::Thread& memory);
  const std::byte* panel_block(std::int64_t panel, const Block& block, Workspace::Thread& memory);
  float* sums_of(const Job& job, std::int64_t panel, std::int64_t row, Workspace::Thread& memory);
  void finish(const Tile& tile, const float* sums);

  const TileKernel& kernel_;
  const Task& task_;
  Workspace& workspace_;
  Blocking blocking_;
  Range panels_;
  Rows rows_ = {};  // of the superblock; row `packed_from_` comes first
  std::int64_t packed_from_ = 0;
  const PackedWeight* packed_ = nullptr;
  Storage storage_;
  bool keeps_panels_;  // packed on the fly by the first superblock, read by the others
  bool has_panels_ = false;
};

}  // namespace plait::gemm
