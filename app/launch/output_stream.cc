#include "launch/output_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace plait::launch {
namespace {

// Opens a pipe or a terminal a second time, so that it can be non-blocking. Only these make a
// writer wait, and only these can be opened again without a second file position. Empty if the
// system does not allow it.
base::Fd open_again(int fd) {
  struct stat file = {};
  if (fstat(fd, &file) != 0 || (!S_ISFIFO(file.st_mode) && isatty(fd) == 0)) return {};
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return base::Fd(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

ssize_t write_now(int fd, const char* bytes, std::size_t size) {
  const ssize_t sent = send(fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent < 0 && errno == ENOTSOCK ? write(fd, bytes, size) : sent;
}

}  // namespace

OutputStream::OutputStream(int fd) : fd_(fd), own_(open_again(fd)) {}

bool OutputStream::ready(base::Nanoseconds time) const {
  pollfd reader = {.fd = fd(), .events = POLLOUT, .revents = 0};
  return poll(&reader, 1, static_cast<int>(time / base::kMillisecond)) > 0;
}

void OutputStream::write_some() {
  // For a pipe that could not be opened again: if poll() reports it writable, it takes PIPE_BUF
  // bytes at once without blocking.
  while (pending() && ready(0)) {
    const auto piece = std::min<std::size_t>(PIPE_BUF, queue_.size() - sent_);
    const ssize_t sent = write_now(fd(), queue_.data() + sent_, piece);
    if (sent < 0 && errno == EAGAIN) break;
    if (sent < 0 && errno != EINTR) {
      failure_ = errno;
      return drop();
    }
    if (sent > 0) sent_ += sent;
  }
  if (!pending() || sent_ > kFull) {
    queue_.erase(0, sent_);
    sent_ = 0;
  }
}

void OutputStream::write_within(base::Nanoseconds time) {
  const base::Nanoseconds deadline = base::now() + time;
  for (write_some(); pending() && base::now() < deadline; write_some())
    ready(std::min(deadline - base::now(), 10 * base::kMillisecond));
}

std::string OutputStream::take_failure() {
  if (!broken() || reader_is_gone() || failure_ == EIO || std::exchange(is_told_, true)) return "";
  return base::sentence("cannot write to standard ", fd_ == STDERR_FILENO ? "error" : "output",
                        ": ", std::strerror(failure_), "; what is printed from here on is lost");
}

void OutputStream::drop() {
  queue_.clear();
  sent_ = 0;
}

}  // namespace plait::launch
