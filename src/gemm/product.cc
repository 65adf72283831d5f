#include "gemm/product.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "base/parallel.h"
#include "gemm/quant_panels.h"
#include "tensor/stride.h"

namespace plait::gemm {
namespace {

// How much of a view is packed before it is multiplied: enough that memory is read in long runs,
// and little enough that it is still in a cache when it is used.
constexpr std::size_t kPackedAtOnce = 64 * 1024;

// How many rows of X are packed at once: enough that a panel which was made ready is used often,
// few enough that a transposed X is never copied as a whole.
constexpr std::int64_t kSuperblockRows = 1024;

// Rows that stay in the second cache are read again for each panel at no cost.
constexpr std::int64_t kRowsAtHand = 1024 * 1024;

// Jobs of this few panels read all of X again and again. An X of this size doesn't stay in the last
// cache beside the panels and what other processes have there.
constexpr std::int64_t kFewPanels = 8;
constexpr std::int64_t kRowsFromMemory = 8 * 1024 * 1024;

// Rows a multiple of this apart fall into the same few sets of a cache, wherever their pages are.
constexpr std::int64_t kRowsCollide = 4096;

// A job by a view takes columns that have so many bytes in a row of k. If rows of the view are k,
// they are read in runs of this length, and the processor foresees long ones. If they are outputs,
// there are no such runs, and a smaller job calls the hook sooner.
constexpr std::int64_t kPlainRun = 8192;
constexpr std::int64_t kPlainOutputs = 2048;

constexpr std::int64_t kLine = 64;

// With fewer panels, copying rows takes longer than reading them again from beyond the cache.
constexpr std::int64_t kPanelsWorthCopying = 32;

Storage storage_of_weight(const Weight& weight) {
  const auto scheme = weight.scheme();
  return scheme ? storage_of(*scheme) : storage_of(weight.dtype());
}

FewRows few_rows_of(const TileKernel& kernel, Storage storage) {
  return is_operand(storage, kernel.operand()) ? FewRows{} : kernel.few_rows(storage);
}

// The function for these rows by a view. None if all its panels are kept from earlier rows.
PlainRows plain_rows_of(const TileKernel& kernel, const Task& task, Range panels) {
  const Weight& weight = task.call.weight;
  if (weight.is_packed() || task.depth.k == 0) return {};
  if (task.kept != nullptr && task.kept->has_all(panels)) return {};
  const PlainRows plain = kernel.plain_rows(storage_of_weight(weight));
  // A caller that keeps panels has more rows for them.
  const bool turns = task.kept == nullptr && weight.view().layout == WeightLayout::out_in;
  const std::int64_t rows = size(task.rows);
  const bool fits = turns && rows >= plain.min_turned && rows <= plain.max_turned;
  return rows <= plain.max_rows || fits ? plain : PlainRows{};
}

// A job of so many rows takes at most so many panels: their sums stay in a cache.
std::int64_t panels_of_job(const Blocking& blocking, std::int64_t rows) {
  std::int64_t panels = blocking.panels;
  while (panels > 1 && rows * panels > std::int64_t{2} * blocking.rows * blocking.panels)
    panels /= 2;
  return panels;
}

// Some virtual machines don't tell the size of the last cache; it is taken for a large one.
bool is_larger_than_caches(const PackedWeight& weight) {
  static const long last = sysconf(_SC_LEVEL3_CACHE_SIZE);
  constexpr long kLarge = 256L << 20;
  return weight.bytes() > static_cast<std::size_t>(last > 0 ? last : kLarge);
}

}  // namespace

Product::Product(const TileKernel& kernel, const Task& task, Workspace& workspace)
    : kernel_(kernel),
      task_(task),
      workspace_(workspace),
      blocking_(kernel.blocking()),
      panels_{task.columns.begin / kPanelColumns, ceil_div(task.columns.end, kPanelColumns)},
      packed_(task.call.weight.is_packed() ? &task.call.weight.packed() : nullptr),
      comes_from_memory_(packed_ != nullptr && is_larger_than_caches(*packed_)),
      storage_(storage_of_weight(task.call.weight)),
      few_(few_rows_of(kernel, storage_)),
      plain_(plain_rows_of(kernel, task, panels_)),
      results_(task, kernel, packed_) {
  const std::int64_t k = task.depth.padded();
  if (packed_ != nullptr || reads_plain()) return;
  if (task.kept != nullptr) {
    task.kept->prepare(task.call.weight.view(), k);
    panels_of_view_ = {.data = task.kept->data(), .first = 0};
    has_panels_ = task.kept->has_all(panels_);
  } else if (size(task.rows) > kSuperblockRows) {
    borrowed_panels_ =
        PanelMemory(static_cast<std::size_t>(size(panels_)) * panel_bytes(storage_, k));
    panels_of_view_ = {.data = borrowed_panels_.data(), .first = panels_.begin};
  } else {
    few_ = {};  // they take a whole panel, which is more than stays in the second cache
  }
}

void Product::run() {
  workspace_.threads.resize(static_cast<std::size_t>(task_.threads));
  for (std::int64_t row = task_.rows.begin; row < task_.rows.end; row += kSuperblockRows) {
    run_superblock({row, std::min(row + kSuperblockRows, task_.rows.end)});
    has_panels_ = panels_of_view_.data != nullptr;
  }
}

void Product::run_superblock(Range rows) {
  pack_superblock(rows);
  if (widens_rows()) widen_rows(rows);
  if (turns_rows()) turn_rows(rows);
  const std::vector<Job>& jobs = jobs_of(rows);
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  // A thread without a job would only have to be woken.
  const auto most = static_cast<std::int64_t>(jobs.size());
  const auto threads = static_cast<int>(std::clamp<std::int64_t>(most, 1, task_.threads));
  base::on_threads(threads, [&](int thread) {
    Workspace::Thread& memory = workspace_.threads[static_cast<std::size_t>(thread)];
    kernel_.begin();
    try {
      // Relaxed: the counter only hands out numbers, and the flag only saves work.
      while (!failed.load(std::memory_order_relaxed)) {
        const std::size_t job = next.fetch_add(1, std::memory_order_relaxed);
        if (job >= jobs.size()) break;
        const std::size_t later = job + static_cast<std::size_t>(threads);
        memory.next = later < jobs.size() ? jobs[later] : Job{};
        run_job(jobs[job], memory);
      }
    } catch (...) {
      failed.store(true, std::memory_order_relaxed);
      kernel_.end();
      throw;
    }
    kernel_.end();
  });
}

// True if memory has to be asked for rows before they are read, where all of them are in one place.
bool Product::asks_rows() const {
  const auto row_bytes =
      static_cast<std::int64_t>(size_of(kernel_.operand())) * task_.depth.padded();
  return kernel_.row_form() == RowForm::plain && size(panels_) <= kFewPanels &&
         size(task_.rows) * row_bytes >= kRowsFromMemory;
}

bool Product::reads_in_place() const {
  if (!can_read_in_place(task_.call.x, task_.depth, kernel_)) return false;
  const bool collide = in_place(task_.call.x).row_stride % kRowsCollide == 0;
  // Beside a weight's rows, which share a set too, the first cache has no room for them.
  if (reads_plain() && !turns_rows() && collide && size(task_.rows) > 1) return false;
  return !blocking_.spreads_rows || !collide || size(panels_) < kPanelsWorthCopying;
}

void Product::pack_superblock(Range rows) {
  asks_rows_ = asks_rows();
  if (reads_in_place()) {
    rows_ = in_place(task_.call.x);
    packed_from_ = 0;
    return;
  }
  // A job that reads packed rows begins with a whole group of them.
  const bool begins_group = kernel_.row_form() == RowForm::plain || rows.begin % kRowGroup == 0;
  if (task_.packed_rows != nullptr && begins_group) {
    rows_ = *task_.packed_rows;
    packed_from_ = 0;
    return;
  }
  asks_rows_ = false;
  std::byte* to =
      Workspace::at_least(workspace_.rows, packed_rows_bytes(size(rows), task_.depth, kernel_));
  rows_ = pack_rows(task_.call.x, rows, task_.depth, kernel_, {.to = to, .threads = task_.threads});
  packed_from_ = rows.begin;
}

// True if too many lanes of turned rows would be idle.
bool Product::turns_squares() const {
  const std::int64_t rows = size(task_.rows);
  const bool halves = plain_.fills_halves && rows > plain_.lanes;
  const std::int64_t lanes = halves ? plain_.lanes / 2 : plain_.lanes;
  return lanes > 0 && (round_up(rows, lanes) - rows) * 4 >= lanes;
}

// A line of the result has a word of each row; rows that are missing are 0.
void Product::turn_rows(Range rows) {
  constexpr std::int64_t kWord = 4;
  const Dtype dtype = widens_rows() ? Dtype::f32 : kernel_.operand();
  const auto step = kKStep * static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t lanes = round_up(size(rows), kRowGroup);
  const std::int64_t bytes = task_.depth.padded() / kKStep * step * lanes;
  std::byte* to = Workspace::at_least(workspace_.turned, static_cast<std::size_t>(bytes));
  if (lanes > size(rows)) std::fill_n(to, bytes, std::byte{0});
  loops_.transpose({rows_.at(kernel_, rows.begin - packed_from_, 0), rows_.row_stride, size(rows),
                    bytes / lanes / kWord},
                   reinterpret_cast<std::uint32_t*>(to), lanes, Stores::cached);
  rows_ = {.data = to, .row_stride = lanes * kWord};
  packed_from_ = rows.begin;
}

// A line more, so that rows don't share the cache's sets.
void Product::widen_rows(Range rows) {
  const std::int64_t k = task_.depth.padded();
  const std::int64_t stride = k * static_cast<std::int64_t>(sizeof(float)) + kLine;
  std::byte* to =
      Workspace::at_least(workspace_.widened, static_cast<std::size_t>(size(rows) * stride));
  for (std::int64_t i = 0; i < size(rows); ++i)
    convert(rows_.at(kernel_, rows.begin - packed_from_ + i, 0), kernel_.operand(), to + i * stride,
            Dtype::f32, static_cast<std::size_t>(k));
  rows_ = {.data = to, .row_stride = stride};
  packed_from_ = rows.begin;
}

// Every job expands the panels that it reads of such a weight, so a job takes all rows.
const std::vector<Job>& Product::jobs_of(Range rows) const {
  const bool takes_all = packs() || !is_operand(storage_, kernel_.operand());
  const std::int64_t row_step = takes_all ? size(rows) : blocking_.rows;
  std::int64_t panel_step = panels_of_job(blocking_, row_step);
  if (reads_plain()) {
    const bool out_in = task_.call.weight.view().layout == WeightLayout::out_in;
    panel_step = (out_in ? kPlainOutputs : kPlainRun) /
                 (kPanelColumns * static_cast<std::int64_t>(bits_of(storage_)) / 8);
  } else if (packs()) {
    panel_step = std::min(panel_step, panels_at_once(size(rows)));
  }
  const std::int64_t fair = ceil_div(size(panels_), 2 * std::int64_t{task_.threads});
  if (task_.threads > 1) panel_step = std::clamp<std::int64_t>(fair, 1, panel_step);
  std::vector<Job>& jobs = workspace_.jobs;
  jobs.clear();
  for (std::int64_t row = rows.begin; row < rows.end; row += row_step) {
    for (std::int64_t panel = panels_.begin; panel < panels_.end; panel += panel_step) {
      jobs.push_back({.rows = {row, std::min(row + row_step, rows.end)},
                      .panels = {panel, std::min(panel + panel_step, panels_.end)}});
    }
  }
  return jobs;
}

// Few panels of a view, so that long runs of them can be packed at once; but more where there are
// more rows to be read again for each job.
std::int64_t Product::panels_at_once(std::int64_t rows) const {
  const auto row_bytes =
      static_cast<std::int64_t>(size_of(kernel_.operand())) * task_.depth.padded();
  if (rows * row_bytes <= kRowsAtHand) return 1;
  return rows <= blocking_.rows ? 2 : 4;
}

std::int64_t Product::step_of(const Job& job) const {
  const bool is_ready = is_operand(storage_, kernel_.operand());
  const bool whole = has_few(job) || (is_ready && size(job.rows) <= blocking_.few);
  return whole ? task_.depth.padded() : blocking_.k;
}

// An expanded block of a panel is used for all rows.
std::int64_t Product::rows_at_once(const Job& job) const {
  return is_operand(storage_, kernel_.operand()) ? blocking_.rows : size(job.rows);
}

// The panels of a view are packed here: of those that are kept all k, of others the blocks' alone.
PanelSource Product::source_for(const Job& job, Range blocks, Workspace::Thread& memory) {
  PanelSource from = {.packed = packed_,
                      .storage = storage_,
                      .operand = kernel_.operand(),
                      .panels = panels_of_view_.data,
                      .first_panel = panels_of_view_.first,
                      .k = {0, task_.depth.padded()}};
  if (packed_ != nullptr || size(blocks) == 0) return from;
  if (panels_of_view_.data != nullptr) {
    if (packs()) pack_missing(job.panels);
    return from;
  }
  const DepthBlocks::Block last = memory.cut.block(blocks.end - 1);
  from.k = {memory.cut.block(blocks.begin).padded_begin(),
            last.padded_begin() + last.padded_length()};
  from.first_panel = job.panels.begin;
  std::byte* to = Workspace::at_least(memory.panels, static_cast<std::size_t>(size(job.panels)) *
                                                         panel_bytes(storage_, size(from.k)));
  from.panels = to;
  pack_view(job.panels, from.k, to);
  return from;
}

// Packs those of these panels that are not kept yet. No other job has any of them.
void Product::pack_missing(Range panels) const {
  const Range k = {0, task_.depth.padded()};
  for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) {
    if (task_.kept != nullptr && task_.kept->has(panel)) continue;
    pack_view({panel, panel + 1}, k,
              panels_of_view_.data + static_cast<std::size_t>(panel - panels_of_view_.first) *
                                         panel_bytes(storage_, k.end));
    if (task_.kept != nullptr) task_.kept->has_packed(panel);
  }
}

void Product::pack_view(Range panels, Range k, std::byte* to) const {
  const std::int64_t length = std::min(k.end, task_.depth.k) - k.begin;
  for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) {
    pack_panel(task_.call.weight.view(), {.panel = panel, .begin = k.begin, .length = length}, to);
    to += panel_bytes(storage_, size(k));
  }
}

// The rows that a block of a panel is packed from.
AheadRows Product::rows_of_view(const PanelBlocks::Index& place) const {
  if (place.block.pieces.empty()) return {};
  const WeightView& weight = task_.call.weight.view();
  const Range k = {place.block.padded_begin(),
                   std::min(place.block.padded_begin() + place.block.padded_length(), weight.k())};
  const Range columns = {place.panel * kPanelColumns,
                         std::min((place.panel + 1) * kPanelColumns, weight.n())};
  const bool out_in = weight.layout == WeightLayout::out_in;
  const ConstTensorView rows =
      out_in ? weight.view.row_range(columns.begin, columns.end).column_range(k.begin, k.end)
             : weight.view.row_range(k.begin, k.end).column_range(columns.begin, columns.end);
  return {.first = static_cast<const std::byte*>(rows.data),
          .stride = tensor::stride_bytes(rows),
          .bytes = static_cast<std::int64_t>(rows.row_bytes()),
          .rows = rows.rows};
}

void Product::make_room(const Job& job, Workspace::Thread& memory) const {
  const std::size_t row_bytes = kPanelColumns * sizeof(float);
  const std::size_t bytes = static_cast<std::size_t>(size(job.rows) * size(job.panels)) * row_bytes;
  std::byte* sums =
      Workspace::at_least(memory.sums, bytes * static_cast<std::size_t>(task_.leaves.slots()));
  if (task_.depth.k == 0) std::fill_n(sums, bytes, std::byte{0});
  if (!has_parts(job)) return;
  const std::size_t strip = static_cast<std::size_t>(kernel_.max_rows()) * row_bytes;
  Workspace::at_least(memory.parts,
                      memory.cut.has_whole_groups() ? std::max(strip, kPartsAtOnce) : bytes);
}

// Panels that are read once, by few rows, need not be there as a whole.
std::int64_t Product::blocks_at_once(const Job& job, const DepthBlocks& cut) const {
  const bool once = packs_pieces() && size(job.rows) <= rows_at_once(job);
  if (!once || cut.size() == 0) return cut.size();
  const std::size_t bytes =
      static_cast<std::size_t>(size(job.panels)) * panel_bytes(storage_, cut.longest());
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(kPackedAtOnce / bytes), 1, cut.size());
}

void Product::run_job(const Job& job, Workspace::Thread& memory) {
  if (reads_plain()) return run_plain(job, memory);
  memory.cut.make(task_.depth, task_.leaves, step_of(job));
  const std::int64_t all = memory.cut.size();
  const std::int64_t at_once = blocks_at_once(job, memory.cut);
  const std::int64_t row_step = rows_at_once(job);
  Range blocks = {0, 0};
  do {
    blocks = {blocks.end, std::min(blocks.end + at_once, all)};
    const PanelSource from = source_for(job, blocks, memory);
    for (std::int64_t row = job.rows.begin; row < job.rows.end; row += row_step) {
      const Range rows = {row, std::min(row + row_step, job.rows.end)};
      run_blocks({.rows = rows, .panels = job.panels}, blocks, from, memory);
    }
  } while (blocks.end < all);
}

void Product::run_blocks(const Job& job, Range k_blocks, const PanelSource& from,
                         Workspace::Thread& memory) {
  make_room(job, memory);
  const bool few = has_few(job);
  const std::int64_t longest = few ? 0 : memory.cut.longest();
  PanelBlocks blocks(from, longest,
                     Workspace::at_least(memory.blocks, PanelBlocks::bytes(from, longest)));
  const std::int64_t strips = ceil_div(size(job.rows), kernel_.max_rows());
  const std::int64_t turns = std::max<std::int64_t>(size(k_blocks), 1) * size(job.panels);
  const auto place = [&](std::int64_t turn) {
    return place_of(job, k_blocks.begin * size(job.panels) + turn, memory);
  };
  const bool ends = k_blocks.end == memory.cut.size();
  for (std::int64_t i = 0; i < turns; ++i) {
    Turn turn = {.job = job,
                 .place = place(i),
                 .operand = nullptr,
                 .last = ends && i + size(job.panels) >= turns};
    AheadRows ahead;
    if (few) {
      turn.operand = from.stored(turn.place.panel, 0);
    } else if (size(k_blocks) > 0) {
      turn.operand = blocks.ready(turn.place);
      if (i + 1 < turns) blocks.begin(place(i + 1), strips);
      if (packs_pieces())
        ahead = rows_of_view(place(i + turns));
      else if (i + 1 < turns || !packs())
        ahead = blocks.stored_operand(place(i + 1));
      const PanelBlocks::Index none = {.panel = job.panels.begin, .block = {}};
      turn.rows_ahead = rows_after(job, i + 1 < turns ? place(i + 1) : none);
    }
    std::int64_t strip = 0;
    for (std::int64_t row = job.rows.begin; row < job.rows.end; row += kernel_.max_rows()) {
      turn.ahead = part_of(ahead, strip++, strips);
      run_strip(turn, {row, std::min(row + kernel_.max_rows(), job.rows.end)}, memory);
      blocks.advance();
    }
  }
}

// Turn by turn, all panels of a block of k before the next block; behind the job's last turn come
// those of the thread's next job, if that has the same rows.
PanelBlocks::Index Product::place_of(const Job& job, std::int64_t turn,
                                     const Workspace::Thread& memory) {
  const std::int64_t blocks = memory.cut.size();
  Range panels = job.panels;
  if (turn >= std::max<std::int64_t>(blocks, 1) * size(panels)) {
    turn -= blocks * size(panels);
    panels = memory.next.rows == job.rows ? memory.next.panels : Range{0, 0};
    if (turn >= blocks * size(panels)) return {};
  }
  const std::int64_t panel = panels.begin + turn % size(panels);
  if (blocks == 0) return {.panel = panel, .block = {}};
  return {.panel = panel, .block = memory.cut.block(turn / size(panels))};
}

// The last panel of a block of k is followed by the next block, by the same rows; behind the last
// block come the job's rows again, by the next panels, and where there are none the next rows, or
// the window's next, of which the first are the same.
Product::RowsAhead Product::rows_after(const Job& job, const PanelBlocks::Index& next) const {
  if (!asks_rows_ || next.panel != job.panels.begin) return {};
  if (!next.block.pieces.empty()) return {.rows = job.rows, .k = next.block.padded_begin()};
  if (job.panels.end < panels_.end) return {.rows = job.rows, .k = 0};
  const std::int64_t first = job.rows.end < task_.rows.end ? job.rows.end : task_.rows.begin;
  return {.rows = {first, std::min(first + size(job.rows), task_.rows.end)}, .k = 0};
}

}  // namespace plait::gemm
