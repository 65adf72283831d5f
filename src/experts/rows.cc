#include "experts/rows.h"

#include <algorithm>

#include "base/round_up.h"
#include "tensor/room.h"

namespace plait::experts {

namespace {

// Rows begin at cache lines, and their parts can be read as elements.
std::int64_t distance_of(std::int64_t bytes) {
  return static_cast<std::int64_t>(base::round_up(static_cast<std::size_t>(bytes), 64));
}

TensorView part_of(const Buffer& memory, const TensorView& shape, std::int64_t bytes,
                   std::int64_t offset) {
  TensorView view = shape;
  if (shape.rows > 0) view.data = memory.data() + offset;
  view.row_stride = distance_of(bytes) / static_cast<std::int64_t>(size_of(shape.dtype));
  return view;
}

}  // namespace

void RowStore::make(std::int64_t rows) {
  rows_ = rows;
  tensor::make_room(memory_, static_cast<std::size_t>(rows * distance_of(row_bytes_)));
  tensor::make_room(results_memory_, static_cast<std::size_t>(rows * distance_of(result_bytes_)));
}

TensorView RowStore::part(Dtype dtype, std::int64_t cols, std::int64_t offset) const {
  return part_of(memory_, {.dtype = dtype, .rows = rows_, .cols = cols}, row_bytes_, offset);
}

TensorView RowStore::result_part(Dtype dtype, std::int64_t cols, std::int64_t offset) const {
  return part_of(results_memory_, {.dtype = dtype, .rows = rows_, .cols = cols}, result_bytes_,
                 offset);
}

TensorView RowStore::bytes() const { return part(Dtype::s8, row_bytes_, 0); }
TensorView RowStore::results() const { return result_part(Dtype::s8, result_bytes_); }

void Progress::begin(const comm::CountedRows& rows, Groups groups, int world) {
  groups_ = groups.count;
  whole_ = groups.whole;
  world_ = world;
  received_.assign(static_cast<std::size_t>(world), 0);
  next_.assign(static_cast<std::size_t>(world), 0);
  parts_.clear();
  left_ = 0;
  std::vector<std::int64_t> in_block(static_cast<std::size_t>(world), 0);
  for (std::int64_t group = 0; group < groups_; ++group) {
    for (int rank = 0; rank < world; ++rank) {
      const std::int64_t count = rows.counts(rank)[static_cast<std::size_t>(group)];
      parts_.push_back({.in_block = in_block[index(rank)], .first = left_, .count = count});
      in_block[index(rank)] += count;
      left_ += count;
    }
  }
}

bool Progress::has_all(std::int64_t group) const {
  for (int rank = 0; rank < world_; ++rank) {
    const Part& its = part(group, rank);
    if (received_[index(rank)] < its.in_block + its.count) return false;
  }
  return true;
}

bool Progress::is_untouched(std::int64_t group) const { return left_of(group) == rows_of(group); }

std::int64_t Progress::rows_of(std::int64_t group) const {
  std::int64_t rows = 0;
  for (int rank = 0; rank < world_; ++rank) rows += part(group, rank).count;
  return rows;
}

std::int64_t Progress::left_of(std::int64_t group) const {
  std::int64_t rows = 0;
  for (int rank = 0; rank < world_; ++rank)
    rows += part(group, rank).count - part(group, rank).done;
  return rows;
}

bool Progress::find(std::int64_t most, Work& work) const {
  if (left_ == 0) return false;
  for (std::int64_t group = 0; group < groups_; ++group) {
    if (left_of(group) == 0 || !has_all(group)) continue;
    const bool is_short = rows_of(group) <= most;
    return is_short && is_untouched(group) ? find_groups(group, most, work)
                                           : find_rest(group, whole_ ? rows_of(group) : most, work);
  }
  return !whole_ && find_many(most, work);
}

// The group, and those after it, as long as they have all their rows and are not too many.
bool Progress::find_groups(std::int64_t first, std::int64_t most, Work& work) const {
  work.first_group = first;
  work.begin = part(first, 0).first;
  work.end = work.begin;
  work.counts.clear();
  for (std::int64_t group = first; group < groups_; ++group) {
    const std::int64_t rows = rows_of(group);
    if (!has_all(group) || !is_untouched(group) || work.end - work.begin + rows > most) break;
    work.counts.push_back(rows);
    work.end += rows;
  }
  return true;
}

// The first rows of a group that are left, which has all of them.
bool Progress::find_rest(std::int64_t group, std::int64_t most, Work& work) const {
  work = {.first_group = group, .begin = -1, .end = -1, .counts = {}};
  for (int rank = 0; rank < world_; ++rank) {
    const Part& its = part(group, rank);
    if (work.begin >= 0 && its.done > 0) break;
    if (its.done == its.count) continue;
    if (work.begin < 0) work.begin = its.first + its.done;
    work.end = its.first + its.count;
  }
  work.end = std::min(work.end, work.begin + most);
  work.counts = {work.end - work.begin};
  return true;
}

// Rows of a group that has not all: those of the rank of which most have come.
bool Progress::find_many(std::int64_t most, Work& work) const {
  std::int64_t largest = kManyRows - 1;
  for (std::int64_t group = 0; group < groups_; ++group) {
    for (int rank = 0; rank < world_; ++rank) {
      const Part& its = part(group, rank);
      const std::int64_t come = std::min(received_[index(rank)] - its.in_block, its.count);
      if (come - its.done <= largest) continue;
      largest = come - its.done;
      const std::int64_t begin = its.first + its.done;
      const std::int64_t end = begin + std::min(largest, most);
      work = {.first_group = group, .begin = begin, .end = end, .counts = {end - begin}};
    }
  }
  return largest >= kManyRows;
}

void Progress::finish(const Work& work) {
  const std::int64_t end_group = work.first_group + std::ssize(work.counts);
  for (std::int64_t group = work.first_group; group < end_group; ++group) {
    for (int rank = 0; rank < world_; ++rank) {
      Part& its = parts_[static_cast<std::size_t>(group * world_ + rank)];
      const std::int64_t begin = std::max(work.begin, its.first + its.done);
      const std::int64_t end = std::min(work.end, its.first + its.count);
      if (begin < end) its.done += end - begin;
    }
  }
  left_ -= work.end - work.begin;
}

std::int64_t Progress::finished(int rank) {
  std::int64_t& group = next_[index(rank)];
  while (group < groups_ && part(group, rank).done == part(group, rank).count) ++group;
  if (group < groups_) return part(group, rank).in_block + part(group, rank).done;
  return groups_ == 0 ? 0 : part(groups_ - 1, rank).in_block + part(groups_ - 1, rank).count;
}

}  // namespace plait::experts
