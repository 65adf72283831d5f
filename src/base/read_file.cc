#include "base/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "base/fd.h"
#include "base/text.h"

namespace plait::base {

std::string read_file(const std::string& path, std::size_t most) {
  // Opening a pipe without O_NONBLOCK would wait for a writer.
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status{};
  if (!fd || ::fstat(fd.get(), &status) != 0) fail_errno(sentence("cannot read ", path));
  PLAIT_CHECK(S_ISREG(status.st_mode), "cannot read ", path, ": it is not a regular file");
  // One byte more than expected shows whether the file has grown.
  std::string text(std::min(static_cast<std::size_t>(status.st_size), most) + 1, '\0');
  std::size_t length = 0;
  while (length < text.size()) {
    const ssize_t got = ::read(fd.get(), text.data() + length, text.size() - length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(sentence("cannot read ", path));
    if (got == 0) break;
    length += static_cast<std::size_t>(got);
    if (length == text.size() && length <= most) text.resize(std::min(2 * length, most + 1));
  }
  PLAIT_CHECK(length <= most, "cannot read ", path, ": it is longer than ",
              show_bytes(static_cast<double>(most)));
  text.resize(length);
  return text;
}

}  // namespace plait::base
