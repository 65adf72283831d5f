// Sends blocks from their owners to all ranks.
//
// Each rank owns a block of every chunk (see Cut) and sends it to all others, which put it where it
// belongs:
//
//   spread.begin({.own = x, .first_row = shard.begin, .all = gathered});
//   spread.made(n);   // the first n chunks' own blocks can be read
//   spread.step();
#pragma once

#include <cstdint>

#include "overlap/cut.h"
#include "overlap/exchange.h"
#include "plait/tensor_view.h"

namespace plait::overlap {

struct Spreading {
  ConstTensorView own;         // this rank's rows
  std::int64_t first_row = 0;  // of `own` in the whole
  TensorView all;              // the whole: the others' rows are written
};

class Spread {
 public:
  Spread(Exchange& exchange, const Cut& cut, Way way, Dtype dtype)
      : exchange_(exchange), cut_(cut), way_(way), dtype_(dtype) {}

  void begin(const Spreading& what) {
    what_ = what;
    made_ = 0;
  }
  void made(std::uint32_t chunks) { made_ = chunks; }

  // Sends and receives what can be now.
  void step();

  // Chunks whose blocks have come from this peer; from all of them.
  std::uint32_t received(int peer) const { return exchange_.taken(way_, peer); }
  std::uint32_t received() const;
  // Chunks whose own block has been sent to every peer.
  std::uint32_t sent() const;
  bool done() const { return received() == cut_.chunks() && sent() == cut_.chunks(); }

  comm::Awaited awaited() const;

 private:
  bool send_next(int peer);
  bool receive_next(int peer);
  std::size_t bytes(std::uint32_t chunk, int rank) const {
    return static_cast<std::size_t>(cut_.block(chunk, rank).elements()) * size_of(dtype_);
  }

  Exchange& exchange_;
  const Cut& cut_;
  Way way_;
  Dtype dtype_;
  Spreading what_;
  std::uint32_t made_ = 0;
};

}  // namespace plait::overlap
