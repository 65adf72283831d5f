// Pipes that stand for the standard descriptors, for the tests of output.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/fd.h"

namespace plait::launch {

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) ADD_FAILURE() << "no pipe";
    reader = base::Fd(ends[0]);
    writer = base::Fd(ends[1]);
  }

  // The text that is in it at this moment.
  std::string take() const {
    ::fcntl(reader.get(), F_SETFL, O_NONBLOCK);
    std::string text;
    std::array<char, 4096> bytes{};
    for (ssize_t got = 0; (got = ::read(reader.get(), bytes.data(), bytes.size())) > 0;)
      text.append(bytes.data(), static_cast<std::size_t>(got));
    return text;
  }

  base::Fd reader;
  base::Fd writer;
};

// Gives a standard descriptor another file until its end.
class Redirected {
 public:
  Redirected(int fd, const base::Fd& to) : fd_(fd), before_(::dup(fd)) { ::dup2(to.get(), fd); }
  Redirected(const Redirected&) = delete;
  Redirected& operator=(const Redirected&) = delete;
  ~Redirected() { ::dup2(before_.get(), fd_); }

 private:
  int fd_;
  base::Fd before_;
};

}  // namespace plait::launch
