// A flow of partial sums to their owners, which add them up.
//
// Each rank has a part of every block. Parts are sent to the block's owner as soon as they are
// made, and added as a tree over ranks where all ranks' parts of a chunk have come:
//
//   flow.begin();
//   for (...) { make parts; flow.ready(chunks that can be read); flow.step(); }
//   wait until flow.step(), flow.done();
//
// The caller sets base::DefaultFloats: sums obey the thread's settings.
//
// A rank may also write its parts straight into the owners' slots: has_room(), slot(), posted().
// Parts that travel coded it can't: they are f32 until they are sent, and this rank's own are
// rounded as the others are (tensor/coded_rows.h).
//
// If each host has several ranks, a power of two of them in rank order, the sum of a host's parts
// is a node of the tree. Its ranks then add up what they have for another host before it crosses:
// of the blocks for rank 5 of hosts {0 1} {2 3} {4 5}, rank 1 takes that of its mate 0, adds its
// own, and sends the sum, which is f32, to its counterpart 5. Thus a mate's lane brings, of each
// chunk, a block for each other host, in turn from the next one on, and at last one for this rank
// itself. No lane waits for another for ever: a block of another host's waits for blocks of its
// chunk that come before, and one for this rank for sums of other hosts, which are made before
// their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "comm/flow/blocks.h"
#include "comm/flow/hosts.h"
#include "comm/flow/lanes.h"
#include "comm/flow/mate_blocks.h"
#include "plait/tensor_view.h"
#include "tensor/coded_rows.h"

namespace plait::comm {

struct Extent {
  std::int64_t rows;
  std::int64_t cols;

  std::int64_t elements() const { return rows * cols; }
};

// The blocks that a ReduceFlow adds up.
class Partials : public Blocks {
 public:
  virtual Extent extent(std::uint32_t chunk, int owner) const = 0;

  // This rank's part of a block. A flow reads it until the chunk is retired().
  virtual ConstTensorView part(std::uint32_t chunk, int owner) const = 0;

  // The place of this rank's sum, and the bias that is added to it: a value for each column; null:
  // nothing.
  virtual TensorView sum(std::uint32_t chunk) const = 0;
  virtual const float* bias(std::uint32_t /*chunk*/) const { return nullptr; }
};

class ReduceFlow {
 public:
  struct Options {
    Dtype wire;  // of the parts
    // Parts are f32, and travel as 8 bits with scales. For ranks apart.
    bool is_coded = false;
    int threads = 1;
    // Sums may be written over parts: each chunk only when this rank's parts of it have been sent.
    // For ranks apart.
    bool is_in_place = false;
  };
  // `hosts`: what they add up before it crosses must be written into the slots by the flow.
  ReduceFlow(Lanes& lanes, const Hosts& hosts, const Partials& partials, const Options& options);
  ReduceFlow(const ReduceFlow&) = delete;
  ReduceFlow& operator=(const ReduceFlow&) = delete;

  // The next call.
  void begin();

  static constexpr std::uint32_t kAll = UINT32_MAX;

  // The parts of chunks before this one can be read.
  void ready(std::uint32_t chunks) { ready_ = chunks; }

  // Writing into the slots: whether the owners have room for the next chunk, where a peer's block
  // is to be written, and that all are there.
  bool has_room() const;
  TensorView slot(int peer);
  void posted();

  // Sends and sums what can be now.
  void step() {
    while (step_once()) continue;
  }
  // A chunk of each lane at most; false if nothing can be done.
  bool step_once();

  std::uint32_t ready() const { return ready_; }
  std::uint32_t summed() const { return summed_; }

  // Chunks that have been summed, and whose parts were sent to all peers.
  std::uint32_t retired() const;
  bool done() const;

  Awaited awaited() const;

 private:
  bool send_to_mate(std::size_t index);
  bool send_across(int counterpart);
  void send_coded(std::uint32_t chunk, int counterpart);
  bool sum_next();
  void sum_chunk();
  struct Rows {
    std::int64_t begin, end;
  };
  void sum_rows(const ConstTensorView& own, Rows rows, const void** at);
  const float* decoded(const ConstTensorView& own, const tensor::CodedPiece& piece, int source,
                       float* to) const;
  void sum_mates(const ConstTensorView& own, std::byte* to);
  bool mates_have_brought(std::uint32_t chunk, int owner) const;
  void find_mates_blocks(std::size_t bytes);
  void release_mates();
  template <class F>
  void in_shares(const ConstTensorView& own, const F& sum);

  bool adds_up_first() const { return !hosts_.mates().empty(); }
  std::size_t bytes(std::uint32_t chunk, int owner, Dtype dtype) const {
    return static_cast<std::size_t>(partials_.extent(chunk, owner).elements()) * size_of(dtype);
  }
  // The size of a block that crosses to another host.
  std::size_t bytes_across(std::uint32_t chunk, int owner) const {
    if (!is_coded_) return bytes(chunk, owner, across_);
    const Extent block = partials_.extent(chunk, owner);
    return static_cast<std::size_t>(tensor::coded_bytes(block.rows, block.cols));
  }
  std::size_t part_of(int rank) const {
    return world_ * static_cast<std::size_t>(threads_) + static_cast<std::size_t>(rank);
  }
  const std::byte* came_from(int rank) const {
    return static_cast<const std::byte*>(places_[part_of(rank)]);
  }
  std::optional<Awaited> missing() const;

  Lanes& lanes_;
  const Hosts& hosts_;
  const Partials& partials_;
  Dtype wire_;    // of parts
  Dtype across_;  // of what crosses to another host
  bool is_coded_;
  int threads_;
  bool is_in_place_;
  std::size_t world_;
  std::vector<const void*> places_;  // [thread][rank] in parts, then by rank what has come
  std::vector<float> decoded_;       // of coded parts: some columns of each, [thread][rank]
  std::vector<MateBlocks> to_mates_;
  MateBlocks from_mates_;  // all lanes from mates bring the same
  std::uint32_t own_chunks_ = 0;
  std::uint64_t to_send_ = 0;  // chunks that counterparts still get
  std::uint32_t ready_ = 0;
  std::uint32_t summed_ = 0;
};

}  // namespace plait::comm
