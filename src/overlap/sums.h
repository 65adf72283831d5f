// Sends partial sums to their owners, which add them up.
//
// Each rank has a partial matrix, part by part; each block of a chunk belongs to a rank (see Cut).
// Blocks are sent to their owners as soon as they are made, and added as a tree over ranks where
// all ranks' blocks of a chunk have come:
//
//   sums.begin(result);
//   for each part:  sums.made(part, where its blocks are);  sums.step();
//   exchange.wait([&] { sums.step(); return sums.done(); }, ...)
//
// A rank may also write its blocks straight into the owners' slots: room(), box(), posted(). On an
// s8 wire it can't: blocks are f32 until they are sent, and this rank's own are rounded as the
// others are (tensor/coded_rows.h).
//
// Where each host has `per_host` ranks, a power of two of them in rank order, the sum of a host's
// blocks is a node of the tree. Its ranks then add up what they have for another host before it
// crosses: of the blocks for rank 5 of hosts {0 1} {2 3} {4 5}, rank 1 takes that of its mate 0,
// adds its own, and sends the sum to its counterpart 5. So a mate's lane brings, of each chunk, a
// block for each other host, in turn from the next one on, and at last one for this rank itself.
// No lane waits for another for ever: a block of another host's waits for blocks of its chunk that
// come before, and one for this rank for sums of other hosts, which are made before their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "overlap/cut.h"
#include "overlap/exchange.h"
#include "overlap/hosts.h"
#include "plait/tensor_view.h"

namespace plait::overlap {

// Where this rank's sums go: the owner's rows, beginning with `first_row`.
struct Result {
  TensorView out;
  std::int64_t first_row = 0;
  const float* bias = nullptr;  // of all columns; nullptr: none
};

class Sums {
 public:
  // `per_host`: 1 unless blocks are made() to be sent, in f32.
  Sums(Exchange& exchange, const Cut& cut, Dtype wire, int threads, int per_host = 1);

  void begin(const Result& result);

  // Hands over a part's blocks, given by where each rank's begins. They must stay readable until
  // all the part's chunks are past().
  void made(int part, const std::vector<ConstTensorView>& blocks);

  // Writing into the slots: whether the owners have room for the next chunk, where a peer's block
  // is to be written, and that all are there. `own` is this rank's own block.
  bool has_room() const;
  TensorView box(int peer);
  void posted(const ConstTensorView& own);

  // Sends and sums what can be now.
  void step();

  std::uint32_t summed() const { return summed_; }

  // Chunks that have been summed, and whose blocks were sent to all peers.
  std::uint32_t past() const;
  bool done() const { return past() == cut_.chunks(); }

  comm::Awaited awaited() const;

 private:
  // A block to a mate, or the host's sum of blocks to a counterpart.
  bool send_to_mate(int mate);
  bool send_across(int counterpart);
  bool sum_next();
  void sum_chunk();
  void sum_rows(const Block& block, const ConstTensorView& own, Range rows, const void** at);
  void sum_mates(const ConstTensorView& own, const TensorView& to);
  void write(const ConstTensorView& block, std::byte* to);

  std::uint32_t per_lane() const { return static_cast<std::uint32_t>(hosts_.count()); }
  std::uint32_t item(std::uint32_t chunk, int host) const;
  bool mates_have_brought(std::uint32_t item) const;
  void find_mates_blocks(std::size_t bytes);
  template <class F>
  void in_shares(std::int64_t rows, std::int64_t elements, const F& sum);
  ConstTensorView source(std::uint32_t chunk, int rank) const;
  std::size_t wire_bytes(std::uint32_t chunk, int rank) const;
  std::optional<comm::Awaited> missing() const;

  Exchange& exchange_;
  const Cut& cut_;
  Dtype wire_;
  int threads_;
  Hosts hosts_;
  Result result_;
  std::vector<ConstTensorView> own_;      // by part: this rank's block
  std::vector<ConstTensorView> sources_;  // [part][rank], where blocks are made to be sent
  std::vector<const std::byte*> parts_;   // of the chunk that is summed, by rank: what has come
  std::vector<const void*> places_;       // in them, [thread][rank]
  std::vector<float> decoded_;            // of an s8 wire: some columns of each, [thread][rank]
  std::uint32_t made_ = 0;                // chunks that can be read
  std::uint32_t summed_ = 0;
};

}  // namespace plait::overlap
