// Descriptors that no forked child keeps. Otherwise a worker process of the host program would keep
// a listening socket, and so its name, or shared memory for as long as the worker lives.
#pragma once

#include "base/fd.h"

namespace plait::base {

// While an object lives, fork() waits in other threads. A descriptor that is opened and adopted
// meanwhile can't reach a child before it is known here. Memory can't reach a child before
// madvise() excludes it. Use it only around calls that don't wait for other threads or processes.
//
//   const CloseOnFork closing;
//   Fd fd = closing.adopt(::socket(...));
//
// In a child /dev/null takes the number, so that an inherited Fd closes only a descriptor of its
// own. Children that are not made by fork() keep the descriptor.
class CloseOnFork {
 public:
  CloseOnFork();
  CloseOnFork(const CloseOnFork&) = delete;
  CloseOnFork& operator=(const CloseOnFork&) = delete;
  ~CloseOnFork();

  // A descriptor with the number of a standard one (0, 1 or 2) gets another. If the result is
  // negative, errno says why.
  Fd adopt(int fd) const;
};

}  // namespace plait::base
