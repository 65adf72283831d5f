// Descriptors that no forked child keeps: a worker of the host program would otherwise hold a
// listening socket, and with it its name, or shared memory for as long as the worker lives.
#pragma once

#include "base/fd.h"

namespace plait::base {

// While it lives, fork() waits in other threads: a descriptor that is opened and adopted meanwhile
// can't reach a child in between, nor can memory before the kernel is told to keep it from
// children. Only for calls that don't wait for others.
//
//   const CloseOnFork closing;
//   Fd fd = closing.adopt(::socket(...));
//
// In a child the number stays taken, by /dev/null, so that an inherited Fd still closes what is its
// own. Children that are not made by fork() keep the descriptor.
class CloseOnFork {
 public:
  CloseOnFork();
  CloseOnFork(const CloseOnFork&) = delete;
  CloseOnFork& operator=(const CloseOnFork&) = delete;
  ~CloseOnFork();

  // errno is left as it is.
  Fd adopt(int fd) const;
};

}  // namespace plait::base
