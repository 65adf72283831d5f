// Two groups of 16 rows by 32 columns fill four tiles of sums; two tiles of rows and two of the
// panel feed them, so that each tile loaded is used twice. A group alone takes 64 columns.
//
// The order of a sum: the 16 even k of a step are added up, and the 16 odd ones; the two are added,
// and then added to the sum so far. It is the instruction's own, the same for one row as for 32.
// Denormals count as 0, in the operands and in the sums.
#include "gemm/amx/factory.h"

#include <asm/prctl.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

#include "base/instruction_set.h"
#include "gemm/amx/stored.h"
#include "gemm/amx/tiles.h"
#include "gemm/few_rows.h"

namespace plait::gemm::amx {
namespace {

constexpr int kGroup = 16;  // rows of a tile
constexpr int kMaxRows = 2 * kGroup;

// The operand of LDTILECFG: the first palette, with rows and bytes of a row for each of 8 tiles.
struct alignas(64) Shapes {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::array<std::uint8_t, 14> reserved = {};
  std::array<std::uint16_t, 16> row_bytes = {};
  std::array<std::uint8_t, 16> rows = {};
};
static_assert(sizeof(Shapes) == 64);

// Tiles 0 and 1 are sums of the first group of rows, 2 and 3 of the second; 4 and 5 hold the two
// groups' rows, 6 and 7 the panel's. A group alone has its sums in 0 to 3 and its rows in 4.
[[PLAIT_AMX]] void configure(int row_count) {
  const int first = row_count > kGroup ? kGroup : row_count;
  const int second = row_count > kGroup ? row_count - kGroup : row_count;
  Shapes shapes;
  const std::array<int, 8> rows = {first, first, second, second, first, second, kGroup, kGroup};
  for (std::size_t tile = 0; tile < rows.size(); ++tile) {
    shapes.rows[tile] = static_cast<std::uint8_t>(rows[tile]);
    shapes.row_bytes[tile] = 64;
  }
  // gcc 12 believes that the intrinsic reads the first 8 bytes alone, and drops the other stores.
  asm volatile("" : : "r"(&shapes) : "memory");
  _tile_loadconfig(&shapes);
}

// The number of rows that this thread's tiles are shaped for; 0: not at all.
thread_local int shaped_rows = 0;

void shape_tiles(int row_count) {
  if (shaped_rows == row_count) return;
  configure(row_count);
  shaped_rows = row_count;
}

// The panel's lines are asked for this far ahead: a panel read for the first time comes from
// memory, and its blocks lie one behind the other.
constexpr std::int64_t kAhead = 8 * 4 * kTileBytes;

[[PLAIT_AMX, gnu::always_inline]] inline void prefetch_ahead(const std::byte* panel) {
  for (std::int64_t line = 0; line < 2 * kTileBytes; line += 64) {
    _mm_prefetch(panel + kAhead + line, _MM_HINT_T0);
  }
}

// Asks for an equal part of the rows in every step, so that memory works while tiles multiply. Into
// the second cache: the first is full of the block in use.
class Ahead {
 public:
  Ahead(const AheadRows& rows, std::int64_t steps)
      : left_(rows), each_((rows.rows + steps - 1) / steps) {}

  [[PLAIT_AMX, gnu::always_inline]] void step() {
    for (std::int64_t i = 0; i < each_ && left_.rows > 0; ++i, --left_.rows) {
      for (std::int64_t at = 0; at < left_.bytes; at += kLine)
        _mm_prefetch(left_.first + at, _MM_HINT_T1);
      left_.first += left_.stride;
    }
  }

 private:
  static constexpr std::int64_t kLine = 64;
  AheadRows left_;
  std::int64_t each_;
};

// 17 to 32 rows by the 32 columns at `panel` and `sums`.
[[PLAIT_AMX]] void two_groups(const TileCall& call, const std::byte* panel, float* sums,
                              const AheadRows& ask) {
  float* second = sums + std::int64_t{kGroup} * kPanelColumns;
  const SumTiles tiles = {{sums, sums + kGroup, second, second + kGroup}};
  load_sums(tiles, call.first);
  const std::byte* rows = call.rows;
  const std::byte* more_rows = call.rows + call.row_stride;
  Ahead ahead(ask, call.k / kKStep);
  for (std::int64_t k = 0; k < call.k; k += kKStep) {
    ahead.step();
    _tile_loadd(6, panel, kPanelRow);
    _tile_loadd(7, panel + 64, kPanelRow);
    _tile_loadd(4, rows, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, more_rows, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    rows += kTileBytes;
    more_rows += kTileBytes;
    panel += 4 * kTileBytes;
  }
  store_sums(tiles);
}

// 1 to 16 rows by all columns of the panel.
[[PLAIT_AMX]] void one_group(const TileCall& call) {
  const SumTiles tiles = tiles_of_group(call.sums);
  load_sums(tiles, call.first);
  const std::byte* rows = call.rows;
  const std::byte* panel = call.panel;
  for (std::int64_t k = 0; k < call.k; k += kKStep) {
    prefetch_ahead(panel);
    multiply_step(rows, panel);
    rows += kTileBytes;
    panel += 4 * kTileBytes;
  }
  store_sums(tiles);
}

class AmxKernel final : public TileKernel {
 public:
  const char* name() const override { return "amx"; }
  Dtype operand() const override { return Dtype::bf16; }
  RowForm row_form() const override { return RowForm::tiles; }
  int max_rows() const override { return kMaxRows; }

  // 192 k of a panel are 24 KiB, which stay in the first cache beside the strip of rows that passes
  // by, 12 KiB, and its sums, 8 KiB; the rows and the sums of 8 panels are 96 KiB and 512 KiB,
  // which stay in the second.
  Blocking blocking() const override { return {.rows = 256, .panels = 8, .k = 192, .few = kGroup}; }

  // Another library's code on this thread may have shaped the tiles since.
  void begin() const override { shaped_rows = 0; }
  [[PLAIT_AMX]] void end() const override {
    _tile_release();
    shaped_rows = 0;
  }

  void multiply(const TileCall& call) const override {
    shape_tiles(call.row_count);
    if (call.row_count <= kGroup) return one_group(call);
    two_groups(call, call.panel, call.sums, part_of(call.ahead, 0, 2));
    two_groups(call, call.panel + 128, call.sums + 32, part_of(call.ahead, 1, 2));
  }

  FewRows few_rows(Storage storage) const override {
    if (storage == Storage::s8) return {.max_rows = kGroup, .multiply = few_rows_of<Storage::s8>};
    if (storage == Storage::s4) return {.max_rows = kGroup, .multiply = few_rows_of<Storage::s4>};
    return {};
  }
  PlainRows plain_rows(Storage storage) const override { return plain_rows_in_chains(storage); }

 private:
  // A row alone is faster by multiply-adds than on tiles: nothing is expanded at all.
  template <Storage stored>
  static void few_rows_of(const StoredTileCall& call) {
    if (call.row_count == 1) return few_rows_in_chains(stored).multiply(call);
    shape_tiles(call.row_count);
    (stored == Storage::s8 ? multiply_stored_s8 : multiply_stored_s4)(call);
  }
};

// Linux gives a process the tiles' 8 KiB of state when it asks for them, once for all its threads.
bool may_use_tiles() {
  constexpr int kTileData = 18;
  return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, kTileData) == 0;
}

}  // namespace

const char* refusal(Dtype operand) {
  if (operand != Dtype::bf16) return "AMX multiplies bf16 only";
  if (const char* reason = base::refusal(base::InstructionSet::amx)) return reason;
  if (!may_use_tiles()) return "the system does not let this process use AMX tiles";
  return nullptr;
}

std::unique_ptr<TileKernel> create(Dtype) { return std::make_unique<AmxKernel>(); }

}  // namespace plait::gemm::amx
