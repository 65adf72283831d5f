// Memory that UCX has registered, so that a network card may read and write it. Otherwise UCX
// registers each large chunk and ends that again, which takes about as long as to send the chunk.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>

#include "base/region.h"

namespace plait::comm::ucx {

class RegisteredMemory {
 public:
  // An owner of the memory, which stays registered as long as a copy of the owner lives. Where UCX
  // cannot register it, it is owned only. This object and the context must outlive the owner.
  std::shared_ptr<const void> add(ucp_context_h context, const base::Region& memory);

  // For chunks that begin there; null: the memory is not registered.
  ucp_mem_h handle_at(const std::byte* bytes) const;

 private:
  struct Entry {
    std::size_t bytes;
    ucp_mem_h handle;
  };
  class Owner;

  std::map<const std::byte*, Entry, std::less<>> entries_;
};

}  // namespace plait::comm::ucx
