// Sums a shard of which every rank sends its part, chunk by chunk, in rank order.
#pragma once

#include <vector>

#include "comm/collectives/streams.h"
#include "tensor/reduce.h"

namespace plait::comm {

class Reducer {
 public:
  // `mine` is this rank's own part; the sum goes to `out`, which may be the same memory.
  Reducer(const Channels& channels, const void* mine, const Elements& out)
      : rank_(channels.mailbox.group().rank()),
        mine_(static_cast<const std::byte*>(mine)),
        out_(static_cast<std::byte*>(out.data)),
        dtype_(out.dtype),
        pieces_(out.count, out.dtype),
        parts_(channels.mailbox.group().world()) {
    receivers_.reserve(parts_.size() - 1);
    for (int peer = 0; peer < static_cast<int>(parts_.size()); ++peer) {
      if (peer != rank_) receivers_.emplace_back(channels, peer, pieces_);
    }
  }

  // Sums the next chunk, where all its parts are here.
  bool reduce_next(const Tag& tag) {
    if (done()) return false;
    for (const Receiver& receiver : receivers_) {
      if (!receiver.arrived(tag)) return false;
    }
    const std::size_t offset = pieces_.offset_bytes(next_);
    for (const Receiver& receiver : receivers_) parts_[receiver.peer()] = receiver.data();
    parts_[rank_] = mine_ + offset;
    if (pieces_.count(next_) > 0) {
      tensor::sum_in_order(out_ + offset, dtype_, parts_.data(), static_cast<int>(parts_.size()),
                           dtype_, pieces_.count(next_));
    }
    for (Receiver& receiver : receivers_) receiver.take();
    ++next_;
    return true;
  }

  std::uint32_t next() const { return next_; }
  bool done() const { return next_ == pieces_.chunks(); }
  const Receivers& receivers() const { return receivers_; }

 private:
  int rank_;
  const std::byte* mine_;
  std::byte* out_;
  Dtype dtype_;
  Pieces pieces_;
  Receivers receivers_;
  std::vector<const void*> parts_;
  std::uint32_t next_ = 0;
};

}  // namespace plait::comm
