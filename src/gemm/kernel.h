// The interface of an instruction set's kernel: a few rows of X times one panel of the weight.
//
//   kernel.multiply({.rows = rows, .row_stride = stride, .panel = panel, .k = 256,
//                    .sums = sums, .row_count = 32, .first = true});
//
// Everything else (packing, blocking, threads, windows, epilogues, hooks) is written once, around
// this. A kernel sums k in one fixed order for each element, whatever the number of rows and
// wherever a sum over k is interrupted at a multiple of kKStep and taken up again: the numerics
// contract rests on that sentence, and tests/gemm/kernel_test.cc holds every kernel to it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "gemm/storage.h"
#include "plait/dtype.h"

namespace plait::gemm {

// Panels are this many columns wide, the last one of a weight padded with zeros.
inline constexpr int kPanelColumns = 64;

// k is padded with zeros to a multiple of this, in rows and in panels.
inline constexpr int kKStep = 32;

// How the rows of X lie in memory when a kernel reads them.
enum class RowForm : std::uint8_t {
  plain,  // one after another, row_stride bytes apart: X itself where its dtype and k allow
  tiles,  // groups of 16 rows; in each, for every 32 k, 16 places for a row's 32 elements
};

// Sums of leaves of k that are added to a leaf when it is complete, the first one first: each
// [row_count][64], 64-byte aligned.
struct Nodes {
  std::array<const float*, 4> of = {};
  int count = 0;
};

// The output of sums that are whole and only have to be rounded: rows of 64 columns.
struct TileOut {
  std::byte* data = nullptr;    // aligned to an element only; nullptr: they stay sums
  std::int64_t row_stride = 0;  // in bytes
  Dtype dtype = Dtype::f32;
};

// Rows of a view or of a panel that are read next. A kernel asks memory for them meanwhile.
struct AheadRows {
  const std::byte* first = nullptr;
  std::int64_t stride = 0;  // in bytes
  std::int64_t bytes = 0;   // of each
  std::int64_t rows = 0;    // 0: nothing, or it is not known
};

// One of some equal parts of them.
inline AheadRows part_of(const AheadRows& ahead, std::int64_t part, std::int64_t parts) {
  const std::int64_t begin = ahead.rows * part / parts;
  return {.first = ahead.first + begin * ahead.stride,
          .stride = ahead.stride,
          .bytes = ahead.bytes,
          .rows = ahead.rows * (part + 1) / parts - begin};
}

// A block of a panel, k from a multiple of kKStep to another, in the kernel's operand:
//   f32   [k][64]           bf16  [k / 2][64][2]: pairs of k beside each other
struct TileCall {
  const std::byte* rows;    // of the block's first k; 64-byte aligned in the form `tiles`
  std::int64_t row_stride;  // bytes from one row to the next; in `tiles`, from group to group
  const std::byte* panel;   // 64-byte aligned
  std::int64_t k;           // a multiple of kKStep, at least one
  float* sums;              // [row_count][64], 64-byte aligned
  int row_count;            // 1 to TileKernel::max_rows()
  bool first;               // the sums start from 0; otherwise from what `sums` holds
  AheadRows ahead = {};
  const std::byte* rows_ahead = nullptr;  // likewise: as many rows of X of as many k
  // k in these leaves, of one that adds_nodes(): each is made in its slot (leaves.h), of which the
  // first is at `sums` and the others this far apart; they need no `nodes`. Empty: all k are one.
  std::span<const std::int64_t> leaves = {};
  std::int64_t slot_stride = 0;  // in floats
  Nodes nodes = {};          // added to the sums before they are stored, by one that adds_nodes()
  TileOut out = {};          // the place for the results of one that rounds(); `sums` are read only
  bool from_memory = false;  // the panel is in no cache
};

// How much of a product is worked on at once, so that it stays in the caches.
struct Blocking {
  int rows;    // of X beside a block of panels
  int panels;  // whose sums are kept while k advances
  int k;       // a multiple of kKStep
  int few;     // for so many rows k is not cut: their panels are best read from memory in a line
  // The cache is too small for rows that share a few of its sets: those are copied first.
  bool spreads_rows = false;
};

// A few rows by a block of a panel as it is stored, of fewer bits than the kernel's operand.
struct StoredTileCall {
  const std::byte* rows;       // in the kernel's operand and form, of the block's first k
  std::int64_t row_stride;     // bytes from one row to the next
  std::int64_t step_stride;    // bytes from one kKStep of a row to the next
  const std::int8_t* panel;    // 64-byte aligned
  const std::int8_t* offsets;  // [groups][64], of the columns of s8 and s4; nullptr: none
  std::int64_t k;              // of a group; a multiple of kKStep, at least one
  float* sums;                 // [groups][row_count][64], 64-byte aligned
  int row_count;               // 1 to FewRows::max_rows
  bool first;                  // the sums start from 0; otherwise from what `sums` holds
  int groups = 1;              // of k, one behind the other, each summed up by itself
  std::int64_t offset_step = kPanelColumns;  // from a group's offsets to the next; 0: all have one
  // For a function that adds leaves (leaves.h). If this is not 0, each group is a leaf of a sum of
  // this many leaves, and the first group is leaf number `leaf`. A leaf is multiplied by `scales`,
  // the nodes below it are added, and the result is written to its slot. Slot 0 is at `sums`.
  std::int64_t leaves = 0;
  std::int64_t leaf = 0;
  std::int64_t slot_stride = 0;   // from one slot to the next, in floats
  const float* scales = nullptr;  // [64], one of each column; nullptr: 1
};

// A function that multiplies few rows without writing the panel's operand to memory.
struct FewRows {
  int max_rows = 0;  // 0: there is none, or none that is faster
  void (*multiply)(const StoredTileCall& call) = nullptr;
  // True if multiply() takes leaves; the bits are those of Loops::add_to_leaves. Only the whole sum
  // has its columns in order; the slots below it have them in an order of the function's own.
  bool adds_leaves = false;
};

// A few rows by columns of a weight that is read where it lies.
struct PlainCall {
  const std::byte* rows;       // in the kernel's operand and form, or as PlainRows says
  std::int64_t row_stride;     // bytes from one row to the next
  std::int64_t step_stride;    // bytes from one kKStep of a row to the next
  const std::byte* weight;     // its first column at k = 0
  std::int64_t weight_stride;  // bytes from one output to the next if out_in, or from one k
  bool out_in;
  std::int64_t columns;
  std::int64_t k;                        // without padding, which the rows have
  std::span<const std::int64_t> leaves;  // the lengths, with padding (leaves.h)
  float* sums;                           // slot 0: [panels][row_count][64], 64-byte aligned
  std::int64_t slot_stride;              // from one slot to the next, in floats
  int row_count;                         // at least 1; the most are in PlainRows
};

// A function that multiplies few rows without a panel of the weight. It adds leaves; the last slot
// then has the whole sums.
struct PlainRows {
  int max_rows = 0;  // 0: there is none
  void (*multiply)(const PlainCall& call) = nullptr;
  // If it is not 0, more rows than this are widened to f32 for another function.
  int max_narrow = 0;
  void (*multiply_wide)(const PlainCall& call) = nullptr;
  // Another one for more rows, where the weight's rows are outputs. It takes X turned: a line of 16
  // rows, or lines beside each other, for each word of 4 bytes, `row_stride` bytes apart.
  int min_turned = 0;
  int max_turned = 0;
  void (*multiply_turned)(const PlainCall& call) = nullptr;
  // Another one, likewise, for counts by which at least a quarter of `lanes` would be idle, or of
  // half of them behind the first if it fills_halves: it is given widened rows if max_narrow is not
  // 0. 0: there is none.
  int lanes = 0;
  bool fills_halves = false;
  void (*multiply_squares)(const PlainCall& call) = nullptr;
};

class TileKernel {
 public:
  virtual ~TileKernel() = default;

  virtual const char* name() const = 0;
  virtual Dtype operand() const = 0;  // f32 or bf16: of rows and panels
  virtual RowForm row_form() const = 0;
  virtual int max_rows() const = 0;
  virtual Blocking blocking() const = 0;

  // Once by every thread before its first multiply() of a product, and once after its last.
  virtual void begin() const {}
  virtual void end() const {}

  // Any number of threads at once, each with sums of its own.
  virtual void multiply(const TileCall& call) const = 0;

  // True if multiply() takes Nodes and leaves; the bits are those of Loops::add_to_leaves.
  virtual bool adds_nodes() const { return false; }

  // True if multiply() takes a TileOut, of any dtype; the bits are those of Loops::finish. A kernel
  // that rounds also adds nodes.
  virtual bool rounds() const { return false; }

  // For panels that are not the operand; the bits are those that multiply() gives for the expanded
  // panel. A kernel without it is given the expanded panel for few rows too.
  virtual FewRows few_rows(Storage /*storage*/) const { return {}; }

  // For weights whose panels would have this storage; the bits are those that multiply() gives for
  // the panels. A kernel without it is given panels of a plain weight too.
  virtual PlainRows plain_rows(Storage /*storage*/) const { return {}; }
};

}  // namespace plait::gemm
