#include "experts/dispatch.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "experts/checks.h"

namespace plait::experts {

Dispatch::Dispatch(comm::Group& group, std::int64_t groups, const Shape& shape,
                   std::function<void()> make)
    : from(group.world(), groups, std::max(shape.stored_bytes(), shape.result_bytes)),
      group_(group),
      groups_(groups),
      shape_(shape),
      make_(std::move(make)),
      headers_(static_cast<std::size_t>(group.world()) * static_cast<std::size_t>(groups + 1)),
      blocks_(static_cast<std::size_t>(group.world())),
      arrivals_(blocks_.size()) {}

void Dispatch::begin(const Batch& batch) {
  source_ = &batch.source;
  order_ = &batch.order;
  for (int peer = 0; peer < group_.world(); ++peer) {
    if (peer == group_.rank()) continue;  // its own rows travel nowhere
    Block& block = blocks_[index(peer)];
    const std::span<const std::int64_t> slots = batch.order.slots(peer);
    block.rows.clear();
    block.next.assign(slots.size(), kNone);
    last_.assign(static_cast<std::size_t>(batch.rows), kNone);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const std::int64_t row = slots[i] / shape_.top;
      std::int32_t& last = last_[static_cast<std::size_t>(row)];
      const auto slot = static_cast<std::int32_t>(i);
      if (last == kNone) {
        block.rows.push_back({.of_batch = row, .first_slot = slot});
      } else {
        block.next[static_cast<std::size_t>(last)] = slot;
      }
      last = slot;
    }
    auto header = headers_.begin() + peer * (groups_ + 1);
    for (std::int64_t group = 0; group < groups_; ++group)
      *header++ = batch.order.count(peer, group);
    *header = std::ssize(block.rows);
  }
}

std::int64_t Dispatch::learn(int peer, std::span<const std::int64_t> counts) {
  const std::int64_t slots = from.learn(peer, counts.first(counts.size() - 1), kLayer, group_);
  const std::int64_t rows = counts.back();
  const bool is_possible = rows >= 0 && rows <= slots && slots <= kMostSlots;
  if (!is_possible || slots > rows * shape_.top) {
    group_.fail_and_raise({Code::mismatch, peer,
                           base::sentence(kLayer, ": rank ", peer, " sends rank ", group_.rank(),
                                          " ", rows, " rows for ", slots, " slots")});
  }
  return arrivals_[index(peer)].rows = rows;
}

void Dispatch::set_places(const RowStore& store) {
  places_ = store.bytes();
  for (int peer = 0; peer < group_.world(); ++peer) {
    if (peer == group_.rank()) continue;
    Arrivals& its = arrivals_[index(peer)];
    its.taken = 0;
    its.first = 0;
    its.has_row.assign(static_cast<std::size_t>(from.block(peer).rows()), false);
  }
}

void Dispatch::write(int peer, const comm::RowPiece& piece, std::byte* to) {
  const Block& block = blocks_[index(peer)];
  const std::span<const std::int64_t> slots = order_->slots(peer);
  const float* const weights = source_->slot_weights();
  const auto put = [&](const void* what, std::size_t bytes) {
    std::memcpy(to, what, bytes);
    to += bytes;
  };
  for (std::int64_t i = piece.rows.begin; i < piece.rows.end; ++i) {
    const Row& row = block.rows[static_cast<std::size_t>(i)];
    source_->write_row(row.of_batch, to);
    to += shape_.shared_bytes;
    std::int32_t slot = row.first_slot;
    for (std::int64_t place = 0; place < shape_.top; ++place) {
      const auto at = static_cast<std::size_t>(slot);
      put(&slot, sizeof(slot));
      if (shape_.has_weights) {
        const float weight =
            slot == kNone ? 0 : weights[static_cast<std::size_t>(slots[at] / shape_.parts)];
        put(&weight, sizeof(weight));
      }
      if (slot != kNone) slot = block.next[at];
    }
  }
}

void Dispatch::read(int peer, const comm::RowPiece& piece, const std::byte* from_chunk) {
  Arrivals& its = arrivals_[index(peer)];
  const std::byte* at = from_chunk;
  for (std::int64_t i = piece.rows.begin; i < piece.rows.end; ++i) {
    const std::byte* const row = at;
    at += shape_.shared_bytes;
    for (std::int64_t place = 0; place < shape_.top; ++place) {
      std::int32_t slot;
      std::memcpy(&slot, at, sizeof(slot));
      at += sizeof(slot);
      if (slot != kNone) this->place(peer, slot, row, at);
      at += shape_.weight_bytes();
    }
  }
  its.taken += piece.rows.count();
  const std::int64_t slots = std::ssize(its.has_row);
  while (its.first < slots && its.has_row[static_cast<std::size_t>(its.first)]) ++its.first;
  if (its.taken == its.rows && its.first < slots) {
    group_.fail_and_raise({Code::mismatch, peer,
                           base::sentence(kLayer, ": rank ", peer, " sends rank ", group_.rank(),
                                          " no row for slot ", its.first, " of ", slots)});
  }
}

// `slot` is as the peer sent it: it may be anything.
void Dispatch::place(int peer, std::int32_t slot, const std::byte* row, const std::byte* weight) {
  Arrivals& its = arrivals_[index(peer)];
  const auto at = static_cast<std::size_t>(slot);
  if (slot < 0 || at >= its.has_row.size() || its.has_row[at]) {
    group_.fail_and_raise(
        {Code::mismatch, peer,
         base::sentence(kLayer, ": rank ", peer, " sends rank ", group_.rank(), " a row for slot ",
                        slot, "; slots 0 to ", std::ssize(its.has_row) - 1, " get one each")});
  }
  its.has_row[at] = true;
  from.block(peer).for_each_run({slot, slot + 1}, [&](comm::RowRange rows, std::int64_t /*at*/) {
    auto* const to = static_cast<std::byte*>(places_.row(rows.begin));
    std::memcpy(to, row, static_cast<std::size_t>(shape_.shared_bytes));
    std::memcpy(to + shape_.shared_bytes, weight, static_cast<std::size_t>(shape_.weight_bytes()));
  });
}

}  // namespace plait::experts
