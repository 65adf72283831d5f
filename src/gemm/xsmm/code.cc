#include "gemm/xsmm/code.h"

#include <sys/mman.h>

#include "base/check.h"

namespace plait::gemm::xsmm {

CodeMemory::CodeMemory(std::size_t bytes) {
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
  if (memory == MAP_FAILED) base::fail_errno("mmap of memory for generated code");
  bytes_ = {static_cast<std::byte*>(memory), bytes};
}

CodeMemory::~CodeMemory() { munmap(bytes_.data(), bytes_.size()); }

// Never writable and executable at once: hardened systems refuse that to everybody.
bool CodeMemory::make_executable() {
  return mprotect(bytes_.data(), bytes_.size(), PROT_READ | PROT_EXEC) == 0;
}

}  // namespace plait::gemm::xsmm
