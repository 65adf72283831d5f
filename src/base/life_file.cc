#include "base/life_file.h"

#include <fcntl.h>

#include <cerrno>

#include "base/check.h"

namespace plait::base {
namespace {

struct flock lock_of(int place) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = place;
  lock.l_len = 1;
  return lock;
}

}  // namespace

void LifeFile::lock(int place) const {
  struct flock lock = lock_of(place);
  if (::fcntl(file_.get(), F_SETLK, &lock) != 0) fail_errno("cannot lock a place of a file");
}

// A failed call, such as on a descriptor that the host program has closed, is no sign of death, so
// it counts as locked.
bool LifeFile::is_locked(int place) const {
  struct flock lock = lock_of(place);
  return ::fcntl(file_.get(), F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

}  // namespace plait::base
