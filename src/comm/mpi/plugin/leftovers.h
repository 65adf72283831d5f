// What outlives its owner because MPI is not done with it.
//
// A request that is active may touch its buffer at any time, and only the peer and the network
// decide when that ends. Destructors don't wait for active requests: they leave them behind
// together with the memory. Leftovers are looked at now and then, and freed as soon as
// they are settled. One that never settles, since its peer is dead or stuck, stays until the
// process ends: that memory is lost on purpose.
#pragma once

#include <cstddef>
#include <memory>

namespace plait::comm::mpi {

class Leftover {
 public:
  Leftover() = default;
  Leftover(const Leftover&) = delete;
  Leftover& operator=(const Leftover&) = delete;
  virtual ~Leftover() = default;

  // Does what can be done now. True when MPI holds nothing of it any more: it is destroyed then.
  virtual bool settled() = 0;
};

// Frees it now, where it is settled already. Where MPI can't be asked any more it is lost, too.
void leave_behind(std::unique_ptr<Leftover> leftover) noexcept;

// Returns how many stay.
std::size_t settle_leftovers() noexcept;

}  // namespace plait::comm::mpi
