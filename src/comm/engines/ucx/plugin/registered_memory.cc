#include "comm/engines/ucx/plugin/registered_memory.h"

#include <utility>

namespace plait::comm::ucx {

// Ends the registration before it gives the memory up.
class RegisteredMemory::Owner {
 public:
  Owner(RegisteredMemory& all, ucp_context_h context, base::Region memory)
      : all_(all), context_(context), memory_(std::move(memory)) {}
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  ~Owner() {
    const auto entry = all_.entries_.find(memory_.data());
    if (entry == all_.entries_.end()) return;
    ucp_mem_unmap(context_, entry->second.handle);
    all_.entries_.erase(entry);
  }

 private:
  RegisteredMemory& all_;
  ucp_context_h context_;
  base::Region memory_;
};

std::shared_ptr<const void> RegisteredMemory::add(ucp_context_h context,
                                                  const base::Region& memory) {
  auto owner = std::make_shared<Owner>(*this, context, memory);
  if (memory.bytes() == 0) return owner;
  ucp_mem_map_params_t params = {};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
  params.address = memory.data();
  params.length = memory.bytes();
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  Entry& entry = entries_[memory.data()];
  entry.bytes = memory.bytes();
  if (ucp_mem_map(context, &params, &entry.handle) != UCS_OK) entries_.erase(memory.data());
  return owner;
}

ucp_mem_h RegisteredMemory::handle_at(const std::byte* bytes) const {
  const auto after = entries_.upper_bound(bytes);
  if (after == entries_.begin()) return nullptr;
  const auto& [begin, entry] = *std::prev(after);
  return bytes < begin + entry.bytes ? entry.handle : nullptr;
}

}  // namespace plait::comm::ucx
