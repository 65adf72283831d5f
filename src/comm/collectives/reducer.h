// Sums a shard of which every rank sends its part, chunk by chunk, as a tree over ranks.
#pragma once

#include <cstring>
#include <vector>

#include "comm/collectives/streams.h"
#include "tensor/copy.h"
#include "tensor/reduce.h"

namespace plait::comm {

class Reducer {
 public:
  // `mine` is this rank's own part, of the parts' dtype; the sum goes to `out`, which may be the
  // same memory where the dtype is.
  Reducer(const Channels& channels, const ConstElements& mine, const Elements& out,
          const Pieces& pieces)
      : mailbox_(&channels.mailbox),
        rank_(channels.mailbox.group().rank()),
        mine_(static_cast<const std::byte*>(mine.data)),
        out_(static_cast<std::byte*>(out.data)),
        in_dtype_(mine.dtype),
        dtype_(out.dtype),
        pieces_(pieces),
        parts_(channels.mailbox.group().world()) {
    receivers_.reserve(parts_.size() - 1);
    for (int peer = 0; peer < static_cast<int>(parts_.size()); ++peer) {
      if (peer != rank_) receivers_.emplace_back(channels, peer, pieces_);
    }
  }

  // Sums the next chunk, where all its parts are here.
  bool reduce_next(const Tag& tag) {
    if (!gather(tag)) return false;
    if (pieces_.count(next_) > 0 && !is_sum_played()) {
      tensor::sum_as_tree(out_ + pieces_.offset(next_) * size_of(dtype_), dtype_, parts_.data(),
                          world(), in_dtype_, pieces_.count(next_));
    }
    take();
    return true;
  }

  // Takes the next parts and answers each with the sum, which must have the parts' dtype. There
  // must be two ranks or more.
  bool answer_next(const Tag& tag) {
    if (!gather(tag)) return false;
    if (const std::size_t bytes = pieces_.bytes(next_); bytes > 0) {
      std::byte* const first = receivers_.front().answer_box();
      sum_twice(out_ + pieces_.offset_bytes(next_), first);
      for (const Receiver& receiver : receivers_) {
        if (receiver.answer_box() != first) std::memcpy(receiver.answer_box(), first, bytes);
      }
    }
    take();
    return true;
  }

  std::uint32_t next() const { return next_; }
  bool done() const { return next_ == pieces_.chunks(); }
  const Receivers& receivers() const { return receivers_; }

 private:
  int world() const { return static_cast<int>(parts_.size()); }

  bool is_sum_played() const {
    const auto read = static_cast<std::int64_t>(pieces_.bytes(next_)) * world();
    const auto written = static_cast<std::int64_t>(pieces_.count(next_) * size_of(dtype_));
    return is_played(*mailbox_, pieces_, {.label = "sum", .read = read, .written = written});
  }

  // Finds the parts of the next chunk; false where not all are here.
  bool gather(const Tag& tag) {
    if (done()) return false;
    for (const Receiver& receiver : receivers_) {
      if (!receiver.arrived(tag)) return false;
    }
    for (const Receiver& receiver : receivers_) parts_[receiver.peer()] = receiver.data(tag);
    parts_[rank_] = mine_ + pieces_.offset_bytes(next_);
    return true;
  }

  void take() {
    for (Receiver& receiver : receivers_) receiver.take();
    ++next_;
  }

  // `out` may be this rank's own part, so that it is written last.
  void sum_twice(std::byte* out, std::byte* kept) {
    const std::size_t count = pieces_.count(next_);
    if (pieces_.large() && mine_ != out_) {
      tensor::streamed_sum_as_tree({.out = out, .kept = kept}, dtype_, parts_.data(), world(),
                                   count);
      if (next_ + 1 == pieces_.chunks()) tensor::stream_fence();
      return;
    }
    tensor::sum_as_tree(kept, dtype_, parts_.data(), world(), dtype_, count);
    std::memcpy(out, kept, pieces_.bytes(next_));
  }

  Mailbox::State* mailbox_;
  int rank_;
  const std::byte* mine_;
  std::byte* out_;
  Dtype in_dtype_;
  Dtype dtype_;
  Pieces pieces_;
  Receivers receivers_;
  std::vector<const void*> parts_;
  std::uint32_t next_ = 0;
};

}  // namespace plait::comm
