#include "gemm/xsmm/code.h"

#include <sys/mman.h>

#include "base/check.h"

namespace plait::gemm::xsmm {
namespace {

void* map(std::size_t bytes) {
  return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
}

// Memory is never writable and executable at once: hardened systems refuse that to all programs.
bool may_execute(void* memory, std::size_t bytes) {
  return mprotect(memory, bytes, PROT_READ | PROT_EXEC) == 0;
}

}  // namespace

CodeMemory::CodeMemory(std::size_t bytes) {
  void* memory = map(bytes);
  if (memory == MAP_FAILED) base::fail_errno("mmap of memory for generated code");
  bytes_ = {static_cast<std::byte*>(memory), bytes};
}

CodeMemory::~CodeMemory() { munmap(bytes_.data(), bytes_.size()); }

bool CodeMemory::is_allowed() {
  void* memory = map(1);
  if (memory == MAP_FAILED) return false;
  const bool allowed = may_execute(memory, 1);
  munmap(memory, 1);
  return allowed;
}

bool CodeMemory::make_executable() { return may_execute(bytes_.data(), bytes_.size()); }

}  // namespace plait::gemm::xsmm
