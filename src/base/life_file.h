// Which of several processes live, by one descriptor in each of them: every process locks its own
// place in an anonymous file that all have open, and the kernel unlocks what a process has locked
// when it ends. A child that it forked does not have its locks.
#pragma once

#include <utility>

#include "base/fd.h"

namespace plait::base {

class LifeFile {
 public:
  // `file`: this process's descriptor of the file. Its locks go with the first descriptor of the
  // file that it closes: it must have no other.
  explicit LifeFile(Fd file) : file_(std::move(file)) {}

  // This process lives, as `place`, for as long as this object.
  void lock(int place) const;

  // Whether another process has locked `place`. A place of this process is not locked by another.
  bool is_locked(int place) const;

 private:
  Fd file_;
};

}  // namespace plait::base
