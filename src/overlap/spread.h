// Sends blocks from their owners to all ranks.
//
// Each rank owns a block of every chunk (see Cut) and sends it to all others, which put it where it
// belongs:
//
//   spread.begin({.own = x, .first_row = shard.begin, .all = gathered});
//   spread.made(n);   // the first n chunks' own blocks can be read
//   spread.step();
//
// Where each host has `per_host` ranks, a block crosses to each other host once, to the owner's
// counterpart there, which hands it on to its mates. A mate's lane brings its own block of a chunk,
// and then those of its counterparts, in turn from the next host on.
#pragma once

#include <cstdint>

#include "overlap/cut.h"
#include "overlap/exchange.h"
#include "overlap/hosts.h"
#include "plait/tensor_view.h"

namespace plait::overlap {

struct Spreading {
  ConstTensorView own;         // this rank's rows
  std::int64_t first_row = 0;  // of `own` in the whole
  TensorView all;              // the whole: the others' rows are written
};

class Spread {
 public:
  Spread(Exchange& exchange, const Cut& cut, Way way, Dtype dtype, int per_host = 1)
      : exchange_(exchange),
        cut_(cut),
        way_(way),
        dtype_(dtype),
        hosts_(exchange.rank(), exchange.world(), per_host) {}

  void begin(const Spreading& what) {
    what_ = what;
    made_ = 0;
  }
  void made(std::uint32_t chunks) { made_ = chunks; }

  // Sends and receives what can be now.
  void step();

  // Chunks of which this rank's block has come; all ranks' blocks.
  std::uint32_t received(int rank) const;
  std::uint32_t received() const;
  // Chunks whose own block has been sent to every peer.
  std::uint32_t sent() const;
  bool done() const { return received() == cut_.chunks() && sent() == cut_.chunks(); }

  comm::Awaited awaited() const;

 private:
  bool send_next(int peer);
  bool receive_next(int peer);

  // A block that a lane brings: of which chunk, and whose.
  struct Item {
    std::uint32_t chunk;
    int owner;
  };
  // The item at a place in the lane from `source` to a rank of this host, or across hosts.
  Item item_at(std::uint32_t place, int source) const;
  bool is_mate(int peer) const { return hosts_.of(peer) == hosts_.here(); }
  std::uint32_t per_lane(int peer) const {
    return is_mate(peer) ? static_cast<std::uint32_t>(hosts_.count()) : 1;
  }
  template <class F>
  void for_neighbours(const F& f) const;
  std::size_t bytes(std::uint32_t chunk, int rank) const {
    return static_cast<std::size_t>(cut_.block(chunk, rank).elements()) * size_of(dtype_);
  }

  Exchange& exchange_;
  const Cut& cut_;
  Way way_;
  Dtype dtype_;
  Hosts hosts_;
  Spreading what_;
  std::uint32_t made_ = 0;
};

}  // namespace plait::overlap
