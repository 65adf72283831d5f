// Tells which of several processes are alive, with one descriptor in each of them. Every process
// locks its own place in an anonymous file that all have open, and the kernel releases a process's
// locks when it ends. A forked child does not inherit them.
#pragma once

#include <utility>

#include "base/fd.h"

namespace plait::base {

class LifeFile {
 public:
  // `file`: this process's descriptor of the file. The process must have no other: closing any
  // descriptor of the file releases its locks.
  explicit LifeFile(Fd file) : file_(std::move(file)) {}

  // Marks this process as alive at `place`, for as long as this object lives.
  void lock(int place) const;

  // Whether another process has locked `place`. False for this process's own place.
  bool is_locked(int place) const;

 private:
  Fd file_;
};

}  // namespace plait::base
