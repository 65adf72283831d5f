// A flow of rows from each rank to each, of which only the sender knows how many there are.
//
//   flow.begin();
//   wait until flow.step(), flow.done();
//
// The first chunk of each block begins with the numbers of its rows, so they cost no round of their
// own. It stays in its slot until those of all ranks have come: then the places are made, as large
// as they have to be, and rows are copied there as they arrive. First chunks wait for nothing, so
// they always come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/flow/blocks.h"
#include "comm/flow/lanes.h"
#include "comm/flow/row_block.h"
#include "plait/tensor_view.h"

namespace plait::comm {

// The rows that a RowFlow sends and receives: a block for each peer.
class RowParcels {
 public:
  virtual ~RowParcels() = default;

  virtual std::int64_t rows_to(int peer) const = 0;

  // The numbers of a header.
  virtual std::span<const std::int64_t> counts_to(int peer) const = 0;

  // Told once for each peer, and then that these are all. The counts are as the peer sent them:
  // they may be anything. Returns how many rows come. Neither is called if the cut has no header.
  virtual std::int64_t learn(int peer, std::span<const std::int64_t> counts) = 0;
  virtual void make_places() = 0;

  // After make_places(), if the cut has a header.
  virtual std::int64_t rows_from(int peer) const = 0;

  // Writes a piece of a block to its chunk, and reads one.
  virtual void write(int peer, const RowPiece& piece, std::byte* to) = 0;
  virtual void read(int peer, const RowPiece& piece, const std::byte* from) = 0;
};

// Those that are runs of rows of a matrix, and go to runs of another.
class MatrixParcels : public RowParcels {
 public:
  virtual ConstTensorView outgoing() const = 0;
  virtual const RowBlock& block_to(int peer) const = 0;
  virtual TensorView incoming() const = 0;
  virtual const RowBlock& block_from(int peer) const = 0;

  std::int64_t rows_to(int peer) const final { return block_to(peer).rows(); }
  std::int64_t rows_from(int peer) const final { return block_from(peer).rows(); }
  void write(int peer, const RowPiece& piece, std::byte* to) final;
  void read(int peer, const RowPiece& piece, const std::byte* from) final;
};

class RowFlow {
 public:
  // Its chunks go on the lanes of this way.
  RowFlow(Lanes& lanes, RowParcels& parcels, const RowCut& cut, Way way = Way::out);
  RowFlow(const RowFlow&) = delete;
  RowFlow& operator=(const RowFlow&) = delete;

  // The next call. All rows may be sent, unless hold() is called before the first step.
  void begin();

  // From here on only those rows are sent, the first of the peer's block, that are ready.
  void hold();
  void ready(int peer, std::int64_t rows);

  // Sends and receives what can be now.
  void step() {
    while (step_once()) continue;
  }
  // A chunk of each lane at most; false if nothing can be done.
  bool step_once();

  bool done() const;

  // True if all headers have come, and places have been made.
  bool has_places() const { return unknown_ == 0; }

  // Which rank is waited for: one that has not said how many rows it has, or sent them all, and
  // failing that one that has no room.
  Awaited awaited() const;

 private:
  bool send_next(int peer);
  bool take_next(int peer);
  void read_header(int peer);
  bool is_known(int peer) const { return at(chunks_from_, peer) != kUnknown; }

  static std::uint32_t at(const std::vector<std::uint32_t>& chunks, int peer) {
    return chunks[static_cast<std::size_t>(peer)];
  }

  static constexpr std::uint32_t kUnknown = UINT32_MAX;

  Lanes& lanes_;
  RowParcels& parcels_;
  RowCut cut_;
  Way way_;
  std::vector<std::uint32_t> chunks_to_;
  std::vector<std::uint32_t> ready_;        // of these
  std::vector<std::uint32_t> chunks_from_;  // kUnknown: the header has not come
  std::vector<std::int64_t> counts_;        // of a header
  std::size_t unknown_ = 0;                 // peers
};

}  // namespace plait::comm
