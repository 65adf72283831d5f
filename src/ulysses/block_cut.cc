#include "ulysses/block_cut.h"

#include <algorithm>

#include "plan/sizes.h"

namespace plait::ulysses {

using plan::length;

namespace {

constexpr std::int64_t kRowUnit = 16;

// A part of each range of columns.
std::vector<Window> columns_of_part(const std::vector<ColumnRange>& group, const Plan& plan,
                                    std::size_t part) {
  std::vector<Window> columns;
  std::int64_t at = 0;
  for (const ColumnRange& range : group) {
    const Range own = plan::ranges_of(range.count, plan, plan::kPanel)[part];
    columns.push_back(
        {.columns = {range.first + own.begin, range.first + own.end}, .at = at + own.begin});
    at += range.count;
  }
  return columns;
}

// All columns, in pieces of at most `width`; 0: of any width.
std::vector<Window> all_columns(const std::vector<ColumnRange>& group, std::int64_t width) {
  std::vector<Window> columns;
  std::int64_t at = 0;
  for (const ColumnRange& range : group) {
    const std::int64_t most = width > 0 ? width : std::max<std::int64_t>(range.count, 1);
    for (std::int64_t done = 0; done < range.count; done += most) {
      const std::int64_t end = std::min(done + most, range.count);
      columns.push_back({.columns = {range.first + done, range.first + end}, .at = at + done});
    }
    at += range.count;
  }
  return columns;
}

}  // namespace

BlockCut::BlockCut(std::int64_t rows, const std::vector<ColumnRange>& group, const CutRule& rule) {
  const Plan& plan = rule.plan;
  if (plan.schedule == Schedule::fused) {
    const std::vector<Window> columns = all_columns(group, rule.width);
    for (std::int64_t begin = 0; begin < rows; begin += rule.height) {
      const Range own = {begin, std::min(begin + rule.height, rows)};
      if (!rule.by_columns) {
        add_part(own, columns, rule.most_elements);
        continue;
      }
      for (const Window& window : columns) add_part(own, {window}, rule.width * rule.height);
    }
    return;
  }
  const bool is_whole = plan.schedule == Schedule::serial;
  const auto parts = static_cast<std::size_t>(is_whole ? 1 : plan.parts);
  for (std::size_t part = 0; part < parts; ++part) {
    if (is_whole) {
      add_part({0, rows}, all_columns(group, 0), rule.most_elements);
    } else if (rule.by_columns) {
      add_part({0, rows}, columns_of_part(group, plan, part), rule.most_elements);
    } else {
      add_part(plan::ranges_of(rows, plan, kRowUnit)[part], all_columns(group, 0),
               rule.most_elements);
    }
  }
}

void BlockCut::add_part(Range rows, const std::vector<Window>& columns,
                        std::int64_t most_elements) {
  Part part = {.windows = {}, .end_chunk = 0, .end_row = rows.end};
  for (Window window : columns) {
    window.rows = rows;
    if (length(rows) == 0 || length(window.columns) == 0) continue;
    part.windows.push_back(window);
    cut_window(window, most_elements);
  }
  part.end_chunk = chunks();
  parts_.push_back(std::move(part));
}

// Whole rows, unless one row is larger than a chunk.
void BlockCut::cut_window(const Window& window, std::int64_t most_elements) {
  const std::int64_t columns = length(window.columns);
  const std::int64_t width = std::min(columns, most_elements);
  const std::int64_t height = std::max<std::int64_t>(most_elements / columns, 1);
  for (std::int64_t row = window.rows.begin; row < window.rows.end; row += height) {
    for (std::int64_t done = 0; done < columns; done += width) {
      chunks_.push_back({.rows = {row, std::min(row + height, window.rows.end)},
                         .columns = {window.columns.begin + done,
                                     window.columns.begin + std::min(done + width, columns)},
                         .at = window.at + done});
    }
  }
}

}  // namespace plait::ulysses
