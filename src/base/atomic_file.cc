#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace plait::base {
namespace {

constexpr mode_t kMode = 0666;  // The umask removes bits from this.
constexpr int kNames = 100;

std::string follow_links(const std::string& path) {
  std::error_code none;
  const auto real = std::filesystem::canonical(path, none);
  return none ? path : real.string();
}

bool exists_but_not_as_a_file(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
}

int open_new(const std::string& path) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode);
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), target_(follow_links(path_)) {
  PLAIT_CHECK(!path_.empty(), "cannot write a file without a name");
  if (exists_but_not_as_a_file(target_)) {
    fd_ = Fd(::open(target_.c_str(), O_WRONLY | O_CLOEXEC));
  } else {
    // Threads of one process, and processes on several hosts, may write next to one another. Each
    // takes the first free number; O_EXCL decides which of them gets it.
    for (int number = 0; number < kNames && !fd_; ++number) {
      temporary_ = sentence(target_, ".", ::getpid(), ".", number, ".tmp");
      fd_ = Fd(open_new(temporary_));
      if (!fd_ && errno != EEXIST) break;
    }
    if (!fd_) temporary_.clear();
  }
  if (!fd_) fail_errno(sentence("cannot write ", path_));
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void check_writable(const std::string& path) {
  // Anything but a regular file, such as a pipe, may have a reader that takes an open and close for
  // the end of the data.
  if (!exists_but_not_as_a_file(path)) {
    AtomicFile probe(path);
    probe.append("\n");  // A full disk, or a limit on file sizes, may refuse this byte.
    return;
  }
  if (::access(path.c_str(), W_OK) != 0) fail_errno(sentence("cannot write ", path));
  if (std::filesystem::is_directory(path)) {
    errno = EISDIR;
    fail_errno(sentence("cannot write ", path));
  }
}

void AtomicFile::append(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd_.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_errno(sentence("cannot write ", path_));
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  if (temporary_.empty()) return;
  // Only fsync() may report a full disk or quota. It also keeps a host that stops now from leaving
  // the new name with old bytes.
  if (::fsync(fd_.get()) != 0) fail_errno(sentence("cannot write ", path_));
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) {
    fail_errno(sentence("cannot write ", path_));
  }
  temporary_.clear();
}

}  // namespace plait::base
