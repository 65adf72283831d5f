// Which of several processes live: every process locks its own place in an anonymous file that all
// have open, and the kernel unlocks it when the process ends. Children that it forked do not have
// its locks, and the locks stay when the host program closes descriptors that are not its own.
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

  // This process lives, as `place`, for as long as this object.
  void lock(int place);

  // Whether `place` is locked, by this process or another. Null where the kernel doesn't say so of
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
