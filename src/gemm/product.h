// One product, run by a tile kernel: how threads share it, in which order, and in which memory.
//
// Rows of X are packed first, a superblock at a time, unless a kernel can read them in place (and
// they don't drive one another out of a small cache). Then the superblock's jobs, each some rows by
// some panels, are handed out to the threads. In a job k advances in blocks. A block of a panel is
// prepared once, while the rows are multiplied by the block before it, and stays in the first-level
// cache while they are multiplied by it. When k is complete, the tiles are written. The panels of a
// view are packed by the job that reads them: as a whole if its rows read them several times, and
// otherwise as many blocks as fit into the second-level cache: memory is asked for the next ones
// while these are multiplied. Few rows, which may be turned or widened first, are multiplied by the
// view itself, if the kernel can do that.
//
// k is cut into leaves (leaves.h). Each is summed by itself, and the sums of earlier leaves are
// added to it when it is complete. If scales are per group, each group of a leaf is also summed by
// itself, and added to the leaf times its scale: leaf = (part 0 · scale 0) + (part 1 · scale 1) +
// ..., each product and each sum rounded. Other scales multiply the whole leaf.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "gemm/depth.h"
#include "gemm/kernel.h"
#include "gemm/loops.h"
#include "gemm/panel_blocks.h"
#include "gemm/panel_cache.h"
#include "gemm/panel_memory.h"
#include "gemm/panels.h"
#include "gemm/results.h"
#include "gemm/rows.h"
#include "gemm/task.h"
#include "gemm/workspace.h"
#include "plait/buffer.h"
#include "plait/gemm.h"

namespace plait::gemm {

// Groups' sums of this many bytes stay in the first-level cache until they are added up.
inline constexpr std::size_t kPartsAtOnce = 16 * 1024;

class Product {
 public:
  Product(const TileKernel& kernel, const Task& task, Workspace& workspace);

  void run();

 private:
  // The rows that are read next, from some k on.
  struct RowsAhead {
    Range rows = {0, 0};  // empty: they are in a cache, or it is not known
    std::int64_t k = 0;
  };

  // One block of a panel, by all rows of a job.
  struct Turn {
    const Job& job;
    PanelBlocks::Index place;  // without pieces where k is 0
    const std::byte* operand;  // as stored, where few rows take it so
    bool last;                 // of the panel's blocks
    AheadRows ahead = {};      // a strip's share of what a later turn reads
    RowsAhead rows_ahead = {};
  };

  // Rows of a turn, and where their results go if a kernel writes them.
  struct Strip {
    Range rows;
    TileOut out = {};
  };

  // Sums of pieces, [pieces][rows][64].
  struct Parts {
    Range rows;
    const float* sums;
  };

  // The destination of a kernel's sums, and the nodes that it adds at the end; or all leaves at
  // once.
  struct Chain {
    float* sums;
    Nodes nodes = {};
    std::span<const std::int64_t> leaves = {};
    std::int64_t slot_stride = 0;
  };

  void run_superblock(Range rows);
  void pack_superblock(Range rows);
  const std::vector<Job>& jobs_of(Range rows) const;
  bool is_grouped() const { return task_.depth.group != 0; }
  // True if each job has to pack the panels that it reads.
  bool packs() const { return packed_ == nullptr && !has_panels_; }
  // True if it packs them for itself alone.
  bool packs_pieces() const { return packs() && panels_of_view_.data == nullptr; }
  bool has_few(const Job& job) const { return size(job.rows) <= few_.max_rows; }
  bool asks_rows() const;
  bool reads_in_place() const;
  RowsAhead rows_after(const Job& job, const PanelBlocks::Index& next) const;
  const std::byte* rows_ahead(const Turn& turn, const Piece& piece, Range rows) const;
  std::int64_t step_of(const Job& job) const;
  std::int64_t rows_at_once(const Job& job) const;
  std::int64_t panels_at_once(std::int64_t rows) const;
  std::int64_t blocks_at_once(const Job& job, const DepthBlocks& cut) const;
  PanelSource source_for(const Job& job, Range blocks, Workspace::Thread& memory);
  void pack_view(Range panels, Range k, std::byte* to) const;
  AheadRows rows_of_view(const PanelBlocks::Index& place) const;
  void pack_missing(Range panels) const;
  void make_room(const Job& job, Workspace::Thread& memory) const;
  bool reads_plain() const { return plain_.max_rows > 0; }
  bool turns_rows() const { return reads_plain() && size(task_.rows) > plain_.max_rows; }
  void turn_rows(Range rows);
  bool turns_squares() const;
  bool widens_rows() const {
    return plain_.max_narrow > 0 && size(task_.rows) > plain_.max_narrow &&
           (!turns_rows() || turns_squares());
  }
  void widen_rows(Range rows);
  void run_plain(const Job& job, Workspace::Thread& memory);
  void multiply_plain(const Job& job, const Workspace::Thread& memory) const;
  void run_job(const Job& job, Workspace::Thread& memory);
  void run_blocks(const Job& job, Range k_blocks, const PanelSource& from,
                  Workspace::Thread& memory);
  static PanelBlocks::Index place_of(const Job& job, std::int64_t turn,
                                     const Workspace::Thread& memory);
  void run_strip(const Turn& turn, Range rows, Workspace::Thread& memory);
  static std::int64_t slot_stride(const Turn& turn);
  static float* sums_of(const Turn& turn, Range rows, int slot, Workspace::Thread& memory);
  bool has_leaves_in_kernel(const Turn& turn) const;
  // True if sums of pieces wait in `parts` before they go to their leaf.
  bool has_parts(const Job& job) const {
    return is_grouped() || (has_few(job) && task_.leaves.count() > 1 && !few_.adds_leaves);
  }
  void run_piece(const Turn& turn, const Piece& piece, const Strip& strip,
                 Workspace::Thread& memory);
  void run_few(const Turn& turn, Range rows, Workspace::Thread& memory);
  static Nodes nodes_of(const Turn& turn, const Piece& piece, Range rows,
                        Workspace::Thread& memory);
  void multiply(const Turn& turn, const Piece& piece, const Strip& strip, const Chain& chain) const;
  void multiply_few(const Turn& turn, std::span<const Piece> groups, Range rows, float* sums) const;
  void add_to_leaves(const Turn& turn, std::span<const Piece> pieces, const Parts& parts,
                     Workspace::Thread& memory) const;

  const TileKernel& kernel_;
  const Task& task_;
  Workspace& workspace_;
  const Loops& loops_ = loops();  // found once: a leaf of one row is over in a microsecond
  Blocking blocking_;
  Range panels_;
  Rows rows_ = {};  // of the superblock; row `packed_from_` comes first
  std::int64_t packed_from_ = 0;
  bool asks_rows_ = false;
  const PackedWeight* packed_ = nullptr;
  bool comes_from_memory_ = false;  // the packed weight, which is larger than any cache
  Storage storage_;
  FewRows few_;      // by panels as they are stored
  PlainRows plain_;  // by the view itself, for these rows; otherwise none
  Results results_;
  // A view's panels, packed by the first superblock or by an earlier run, and read by the others.
  struct Panels {
    std::byte* data = nullptr;  // nullptr: each job packs its own
    std::int64_t first = 0;
  };
  PanelMemory borrowed_panels_;
  Panels panels_of_view_;
  bool has_panels_ = false;
};

}  // namespace plait::gemm
