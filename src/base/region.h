// Memory that several owners may hold: mapped from a file descriptor, or shared within the process.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/fd.h"

namespace plait::base {

// The memory lives until the last copy is gone. A child that this process forks doesn't have it.
class Region {
 public:
  Region() = default;

  // Private to this process, zeroed, page aligned.
  static Region allocate(std::size_t bytes);

  // All of an anonymous file, shared with everybody who maps it. Refuses a file that is smaller
  // than `bytes` or could still shrink: touching it then would kill this process.
  static Region map(const Fd& fd, std::size_t bytes, const std::string& whose);

  std::byte* data() const { return data_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  Region(void* data, std::size_t bytes);

  std::shared_ptr<std::byte> data_;
  std::size_t bytes_ = 0;
};

// An anonymous file of zeros that can neither shrink nor grow: it has no name anywhere, and is gone
// with the last process that holds it. Children that this process forks don't.
Fd make_anonymous_file(const char* label, std::size_t bytes);

}  // namespace plait::base
