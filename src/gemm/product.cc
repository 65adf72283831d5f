#include "gemm/product.h"

#include <algorithm>
#include <atomic>
#include <variant>

#include "gemm/parallel.h"

namespace plait::gemm {
namespace {

// So many rows of X are packed at once: enough that a panel which was made ready is used often,
// few enough that a transposed X is never copied as a whole.
constexpr std::int64_t kSuperblockRows = 1024;

std::int64_t size(Range range) { return range.end - range.begin; }

const WeightView* plain_weight(const GemmCall& call) {
  return std::get_if<WeightView>(&call.weight);
}

const PackedWeight* packed_weight(const GemmCall& call) {
  const auto* packed = std::get_if<std::reference_wrapper<const PackedWeight>>(&call.weight);
  return packed == nullptr ? nullptr : &packed->get();
}

Dtype weight_dtype(const GemmCall& call) {
  return plain_weight(call) != nullptr ? plain_weight(call)->view.dtype
                                       : packed_weight(call)->dtype();
}

}  // namespace

std::byte* Workspace::at_least(Buffer& buffer, std::size_t bytes) {
  if (buffer.bytes() < bytes) buffer = Buffer(bytes, {.huge_pages = true});
  return buffer.data();
}

Product::Product(const TileKernel& kernel, const Task& task, Workspace& workspace)
    : kernel_(kernel),
      task_(task),
      workspace_(workspace),
      blocking_(kernel.blocking()),
      panels_{task.columns.begin / kPanelColumns, ceil_div(task.columns.end, kPanelColumns)},
      packed_(packed_weight(task.call)),
      storage_(storage_of(weight_dtype(task.call))),
      keeps_panels_(packed_ == nullptr && size(task.rows) > kSuperblockRows) {}

void Product::run() {
  workspace_.threads.resize(static_cast<std::size_t>(task_.threads));
  if (keeps_panels_) {
    Workspace::at_least(workspace_.panels, static_cast<std::size_t>(size(panels_)) *
                                               panel_bytes(storage_, task_.depth.padded()));
  }
  for (std::int64_t row = task_.rows.begin; row < task_.rows.end; row += kSuperblockRows) {
    run_superblock({row, std::min(row + kSuperblockRows, task_.rows.end)});
    has_panels_ = keeps_panels_;
  }
}

void Product::run_superblock(Range rows) {
  pack_superblock(rows);
  const std::vector<Job> jobs = jobs_of(rows);
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  on_threads(task_.threads, [&](int thread) {
    Workspace::Thread& memory = workspace_.threads[static_cast<std::size_t>(thread)];
    kernel_.begin();
    try {
      // Relaxed: the counter only hands out numbers, and the flag only saves work.
      while (!failed.load(std::memory_order_relaxed)) {
        const std::size_t job = next.fetch_add(1, std::memory_order_relaxed);
        if (job >= jobs.size()) break;
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

void Product::pack_superblock(Range rows) {
  if (can_read_in_place(task_.call.x, task_.depth, kernel_)) {
    rows_ = in_place(task_.call.x);
    packed_from_ = 0;
    return;
  }
  const std::int64_t stride = packed_row_stride(task_.depth, kernel_);
  const std::int64_t group_stride =
      kernel_.row_form() == RowForm::plain ? stride * kRowGroup : stride;
  std::byte* to =
      Workspace::at_least(workspace_.rows, packed_rows_bytes(size(rows), task_.depth, kernel_));
  parallel_for(ceil_div(size(rows), kRowGroup), task_.threads, [&](std::int64_t group) {
    const std::int64_t begin = rows.begin + group * kRowGroup;
    pack_rows(task_.call.x, begin, std::min(begin + kRowGroup, rows.end), task_.depth, kernel_,
              to + group * group_stride);
  });
  rows_ = {.data = to, .row_stride = stride};
  packed_from_ = rows.begin;
}

// A weight that is not ready is made so by every job that reads it: then a job takes all rows.
std::vector<Product::Job> Product::jobs_of(Range rows) const {
  const bool ready = is_operand(storage_, kernel_.operand()) && (packed_ != nullptr || has_panels_);
  const std::int64_t row_step = ready ? blocking_.rows : size(rows);
  std::int64_t panel_step = blocking_.panels;
  while (panel_step > 1 &&
         row_step * panel_step > std::int64_t{2} * blocking_.rows * blocking_.panels)
    panel_step /= 2;
  const std::int64_t fair = ceil_div(size(panels_), 2 * std::int64_t{task_.threads});
  if (task_.threads > 1) panel_step = std::clamp<std::int64_t>(fair, 1, panel_step);
  std::vector<Job> jobs;
  for (std::int64_t row = rows.begin; row < rows.end; row += row_step) {
    for (std::int64_t panel = panels_.begin; panel < panels_.end; panel += panel_step) {
      jobs.push_back({.rows = {row, std::min(row + row_step, rows.end)},
                      .panels = {panel, std::min(panel + panel_step, panels_.end)}});
    }
  }
  return jobs;
}

void Product::run_job(const Job& job, Workspace::Thread& memory) {
  const Depth& depth = task_.depth;
  Workspace::at_least(memory.sums, static_cast<std::size_t>(size(job.rows) * size(job.panels)) *
                                       kPanelColumns * sizeof(float));
  if (depth.k == 0) std::fill_n(memory.sums.data(), memory.sums.bytes(), std::byte{0});
  // A few rows leave the panels no second use: long blocks spare their sums the way to memory.
  const bool ready = packed_ != nullptr && is_operand(storage_, kernel_.operand());
  const std::int64_t step =
      ready && size(job.rows) <= kernel_.max_rows() ? 4 * blocking_.k : blocking_.k;
  for (std::int64_t k = 0; k < depth.k; k += step) {
    const Block block = {.begin = k,
                         .length = std::min(step, depth.k - k),
                         .padded_begin = k,
                         .first = k == 0,
                         .last = k + step >= depth.k};
    for (std::int64_t panel = job.panels.begin; panel < job.panels.end; ++panel)
      run_block(job, panel, block, memory);
  }
  if (depth.k > 0) return;
  const Block nothing = {.begin = 0, .length = 0, .padded_begin = 0, .first = true, .last = true};
  for (std::int64_t panel = job.panels.begin; panel < job.panels.end; ++panel)
    run_block(job, panel, nothing, memory);
}

void Product::run_block(const Job& job, std::int64_t panel, const Block& block,
                        Workspace::Thread& memory) {
  const std::byte* operand = block.length == 0 ? nullptr : panel_block(panel, block, memory);
  for (std::int64_t row = job.rows.begin; row < job.rows.end; row += kernel_.max_rows()) {
    const std::int64_t count = std::min<std::int64_t>(kernel_.max_rows(), job.rows.end - row);
    float* sums = sums_of(job, panel, row, memory);
    if (operand != nullptr) {
      kernel_.multiply({.rows = rows_.at(kernel_, row - packed_from_, block.padded_begin),
                        .row_stride = rows_.row_stride,
                        .panel = operand,
                        .k = round_up(block.length, kKStep),
                        .sums = sums,
                        .row_count = static_cast<int>(count),
                        .first = block.first});
    }
    if (!block.last) continue;
    const Range columns = {std::max(panel * kPanelColumns, task_.columns.begin),
                           std::min((panel + 1) * kPanelColumns, task_.columns.end)};
    finish({.rows = {row, row + count}, .columns = columns},
           sums + (columns.begin - panel * kPanelColumns));
  }
}

const std::byte* Product::panel_block(std::int64_t panel, const Block& block,
                                      Workspace::Thread& memory) {
  const std::int64_t padded = round_up(block.length, kKStep);
  const bool as_stored = is_operand(storage_, kernel_.operand());
  const std::size_t operand_bytes =
      static_cast<std::size_t>(padded) * kPanelColumns * size_of(kernel_.operand());
  std::byte* scratch = Workspace::at_least(
      memory.block, operand_bytes + (as_stored ? 0 : panel_bytes(storage_, padded)));
  const std::byte* stored = nullptr;
  if (packed_ != nullptr) {
    stored = packed_->panel(panel) + panel_bytes(storage_, block.padded_begin);
  } else {
    std::byte* to = as_stored ? scratch : scratch + operand_bytes;
    if (keeps_panels_) {
      to = workspace_.panels.data() +
           static_cast<std::size_t>(panel - panels_.begin) *
               panel_bytes(storage_, task_.depth.padded()) +
           panel_bytes(storage_, block.padded_begin);
    }
    if (!has_panels_) {
      pack_panel(*plain_weight(task_.call),
                 {.panel = panel, .begin = block.begin, .length = block.length}, to);
    }
    stored = to;
  }
  if (as_stored) return stored;
  expand(storage_, stored, padded, nullptr, kernel_.operand(), scratch);
  return scratch;
}

float* Product::sums_of(const Job& job, std::int64_t panel, std::int64_t row,
                        Workspace::Thread& memory) {
  const std::int64_t first = (panel - job.panels.begin) * size(job.rows) + (row - job.rows.begin);
  return reinterpret_cast<float*>(memory.sums.data()) + first * kPanelColumns;
}

void Product::finish(const Tile& tile, const float* sums) {
  const GemmCall& call = task_.call;
  const Finish how = {.scales = nullptr,
                      .bias = task_.bias == nullptr ? nullptr : task_.bias + tile.columns.begin,
                      .accumulate = call.accumulate,
                      .dtype = call.out.dtype};
  const Loops& set = loops();
  const TensorView out = call.out.column_range(tile.columns.begin - task_.columns.begin,
                                               tile.columns.end - task_.columns.begin);
  for (std::int64_t row = tile.rows.begin; row < tile.rows.end; ++row, sums += kPanelColumns)
    set.finish(how, sums, size(tile.columns), out.row(row - task_.rows.begin));
  if (!call.on_tile) return;
  call.on_tile(tile);
  kernel_.begin();  // the caller's code may have used what the kernel keeps in the processor
}

}  // namespace plait::gemm
