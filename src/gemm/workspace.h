// The memory that products work in; it grows, and is kept from one to the next.
#pragma once

#include <cstddef>
#include <vector>

#include "gemm/panel_blocks.h"
#include "plait/buffer.h"
#include "plait/gemm.h"

namespace plait::gemm {

// The work that a thread takes at a time.
struct Job {
  Range rows;
  Range panels;
};

class Workspace {
 public:
  static std::byte* at_least(Buffer& buffer, std::size_t bytes);

  std::size_t bytes() const;

  struct Thread {
    Buffer sums;
    Buffer parts;   // of groups
    Buffer blocks;  // of panels
    Buffer panels;  // of a view, for one job
    DepthBlocks cut;
    Job next;  // that the thread will probably take after its own; without panels: none
  };

  Buffer rows;
  Buffer widened;  // rows, as a function of PlainRows needs them
  Buffer turned;
  Buffer bias;
  std::vector<Thread> threads;
  std::vector<Job> jobs;
};

}  // namespace plait::gemm
