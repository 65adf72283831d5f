#pragma once

#include <fcntl.h>

namespace plait {

inline int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 4096; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

}  // namespace plait
