#include "base/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"
#include "base/close_on_fork.h"
#include "base/process.h"

namespace plait::base {
namespace {

void* map_pages(std::size_t bytes, int flags, int fd) {
  const CloseOnFork closing;  // no fork between mmap() and madvise()
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (data == MAP_FAILED) fail_errno(sentence("cannot map ", bytes, " bytes of mailbox memory"));
  // Otherwise a forked worker would keep shared memory for as long as it lives, and each write of
  // the parent to private memory would copy a page.
  if (::madvise(data, bytes, MADV_DONTFORK) != 0) {
    ::munmap(data, bytes);
    fail_errno("cannot keep mailbox memory from forked children");
  }
  return data;
}

}  // namespace

// In a child nothing is mapped at this address, or something of the child's own.
Region::Region(void* data, std::size_t bytes)
    : data_(static_cast<std::byte*>(data),
            [bytes, guard = ForkGuard()](std::byte* pages) {
              if (!guard.in_child()) ::munmap(pages, bytes);
            }),
      bytes_(bytes) {}

Region Region::allocate(std::size_t bytes) {
  if (bytes == 0) return {};
  return {map_pages(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1), bytes};
}

Region Region::map(const Fd& fd, std::size_t bytes, const std::string& whose) {
  if (bytes == 0) return {};
  // The kernel drops a descriptor if the receiver has too many open files.
  if (!fd) fail(Code::system, whose, " offers no memory: has a process too many open files?");
  struct stat status = {};
  if (::fstat(fd.get(), &status) != 0) fail_errno("cannot look at the memory of " + whose);
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  const bool sealed = seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
  if (static_cast<std::size_t>(status.st_size) < bytes || !sealed) {
    fail(Code::system, "the memory that ", whose, " offers has ", status.st_size, " bytes, ",
         sealed ? "sealed" : "not sealed", "; ", bytes, " sealed ones were agreed on");
  }
  return {map_pages(bytes, MAP_SHARED, fd.get()), bytes};
}

void Region::populate(std::size_t offset, std::size_t bytes) const {
#ifdef MADV_POPULATE_WRITE
  if (bytes == 0) return;
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = offset / page * page;
  if (::madvise(data() + begin, offset + bytes - begin, MADV_POPULATE_WRITE) == 0) return;
  // A kernel before 5.14 doesn't know how.
  if (errno != EINVAL) fail_errno(sentence("cannot get ", bytes, " bytes of mailbox memory"));
#endif
}

Fd make_anonymous_file(const char* label, std::size_t bytes) {
  Fd fd = CloseOnFork().adopt(::memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) fail_errno("cannot make an anonymous file");
  // The system would send SIGXFSZ, which ends a program without a word.
  rlimit most = {};
  if (::getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < bytes) {
    fail(Code::system, "cannot reserve ", bytes, " bytes of shared memory: files may have ",
         most.rlim_cur, " bytes (ulimit -f), and this memory counts as a file");
  }
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    fail_errno(sentence("cannot reserve ", bytes, " bytes of shared memory"));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    fail_errno("cannot seal an anonymous file");
  }
  return fd;
}

FileAddress address_of(const Fd& file) {
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) fail_errno("cannot look at an anonymous file");
  return {.pid = ::getpid(), .fd = file.get(), .device = status.st_dev, .inode = status.st_ino};
}

// Looked at before it is opened, because opening a pipe or a device would do something to it.
Fd open_file_at(const FileAddress& address) {
  const std::string path = sentence("/proc/", address.pid, "/fd/", address.fd);
  const auto is_it = [&](const struct stat& status) {
    return status.st_dev == address.device && status.st_ino == address.inode;
  };
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) fail_errno("cannot look at " + path);
  if (!is_it(status)) fail(Code::system, path, " is another file than was said");
  Fd file = CloseOnFork().adopt(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!file) fail_errno("cannot open " + path);
  if (::fstat(file.get(), &status) != 0 || !is_it(status))
    fail(Code::system, path, " is another file than was said");
  return file;
}

}  // namespace plait::base
