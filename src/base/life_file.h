// Tells which of several processes are alive. Every process locks its own place in an anonymous
// file that all have open, and the kernel releases the lock when the process ends. Forked children
// do not inherit it, and it stays if the host program closes descriptors that are not its own.
#pragma once

#include <sys/types.h>

#include <optional>

#include "base/fd.h"
#include "base/region.h"

namespace plait::base {

class LifeFile {
 public:
  // `file`: a descriptor of one file of make_anonymous_file() that has a byte for each place.
  explicit LifeFile(Fd file);

  // Marks this process as alive at `place`, for as long as this object lives.
  void lock(int place);

  // True if `place` is locked, by this process or another. Null if the kernel doesn't answer for
  // this file: the host program has closed the descriptor, and may have another file under its
  // number by now.
  std::optional<bool> is_locked(int place) const;

 private:
  Fd file_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  Region life_;
};

}  // namespace plait::base
