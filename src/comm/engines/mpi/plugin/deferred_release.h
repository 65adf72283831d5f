// Requests and memory that are freed later than their owner, because MPI still uses them.
//
// A request that is active may touch its buffer at any time, and only the peer and the network
// decide when that ends. Destructors don't wait for active requests: they defer the release of the
// request and of its memory. Deferred releases are tried again when a carrier begins. One that
// never succeeds, since its peer is dead or stuck, stays until the process ends: that memory is
// lost on purpose.
#pragma once

#include <cstddef>
#include <memory>

namespace plait::comm::mpi {

class DeferredRelease {
 public:
  DeferredRelease() = default;
  DeferredRelease(const DeferredRelease&) = delete;
  DeferredRelease& operator=(const DeferredRelease&) = delete;
  virtual ~DeferredRelease() = default;

  // Does what can be done now. True when MPI uses nothing of it any more; it is destroyed then.
  virtual bool is_done() = 0;
};

// Frees it now if it is done already. After the end of MPI it is lost on purpose, too.
void release_later(std::shared_ptr<DeferredRelease> one) noexcept;

// Frees all that are done; returns how many stay.
std::size_t release_finished() noexcept;

}  // namespace plait::comm::mpi
