// Memory with several owners: mapped from a file descriptor, or shared within the process.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>

#include "base/fd.h"

namespace plait::base {

// The memory lives until the last copy is gone. Forked children don't inherit it.
class Region {
 public:
  Region() = default;

  // Allocates memory private to this process, zeroed and page-aligned.
  static Region allocate(std::size_t bytes);

  // Maps all of an anonymous file, shared with every process that maps it. Refuses a file that is
  // smaller than `bytes` or could still shrink, since touching the missing part would kill this
  // process.
  static Region map(const Fd& fd, std::size_t bytes, const std::string& whose);

  // Has the kernel give the pages of a part now, where it can. Otherwise each comes when first
  // touched, and a page fault in the middle of a product costs more than a chunk.
  void populate(std::size_t offset, std::size_t bytes) const;

  std::byte* data() const { return data_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  Region(void* data, std::size_t bytes);

  std::shared_ptr<std::byte> data_;
  std::size_t bytes_ = 0;
};

// Makes an anonymous file of zeros that can neither shrink nor grow. It has no name, and exists
// until the last process that holds it ends. Forked children don't hold it.
Fd make_anonymous_file(const char* label, std::size_t bytes);

// The path by which other processes open such a file while its descriptor is open. It may be
// another file by then: device and inode say which is meant.
struct FileAddress {
  pid_t pid;
  int fd;
  dev_t device;
  ino_t inode;
};
FileAddress address_of(const Fd& file);

// Opens it through /proc, which needs the same user and namespace of processes. Throws
// Error{system} where that fails, or the file is another one.
Fd open_file_at(const FileAddress& address);

}  // namespace plait::base
