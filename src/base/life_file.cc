#include "base/life_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <string>
#include <utility>

#include "base/check.h"
#include "base/close_on_fork.h"

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

LifeFile::LifeFile(Fd file) : file_(std::move(file)) {
  struct stat status = {};
  if (::fstat(file_.get(), &status) != 0) return;  // is_locked() says null, and lock() why
  device_ = status.st_dev;
  inode_ = status.st_ino;
}

// The lock belongs to the open file description, which the kernel keeps as long as any descriptor
// or mapping of it exists. Only a mapping that children don't get goes with the process and with
// nothing else: a descriptor also goes if the host program closes all that it doesn't know, and
// stays in a child made by clone(). The file is opened again, because descriptors that were passed
// between processes share one open file description, and so one lock.
void LifeFile::lock(int place) {
  const CloseOnFork closing;
  const std::string path = sentence("/proc/self/fd/", file_.get());
  const Fd own = closing.adopt(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!own) fail_errno("cannot open " + path);
  struct flock lock = lock_of(place);
  if (::fcntl(own.get(), F_OFD_SETLK, &lock) != 0) fail_errno("cannot lock a place of a file");
  life_ = Region::map(own, 1, "the file of which ranks live");
}

std::optional<bool> LifeFile::is_locked(int place) const {
  struct flock lock = lock_of(place);
  if (::fcntl(file_.get(), F_OFD_GETLK, &lock) != 0) return std::nullopt;
  // Checked after the answer: a number that the file has now it has had all along.
  struct stat status = {};
  if (::fstat(file_.get(), &status) != 0) return std::nullopt;
  if (status.st_dev != device_ || status.st_ino != inode_) return std::nullopt;
  return lock.l_type != F_UNLCK;
}

}  // namespace plait::base
