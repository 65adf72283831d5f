// Writes output for a reader that may be slow, stuck or gone: as much as the reader takes, without
// ever blocking.
#pragma once

#include <cerrno>
#include <cstddef>
#include <string>

#include "base/clock.h"
#include "base/fd.h"

namespace plait::launch {

class OutputStream {
 public:
  // `fd` is a standard descriptor. Other processes write to the same pipe or terminal, so its flags
  // must not be changed.
  explicit OutputStream(int fd);

  std::string& queue() { return queue_; }
  int fd() const { return own_ ? own_.get() : fd_; }  // to poll for POLLOUT
  bool pending() const { return sent_ < queue_.size(); }
  bool full() const { return queue_.size() - sent_ > kFull; }
  bool broken() const { return failure_ != 0; }
  // Otherwise a broken stream was a terminal (EIO) or a file, which may have no room.
  bool reader_is_gone() const { return failure_ == EPIPE || failure_ == ECONNRESET; }
  // The failure, once; empty for readers and terminals that went.
  std::string take_failure();
  void write_some();  // as much as possible without blocking
  // everything, or as much as the reader takes in this time
  void write_within(base::Nanoseconds time);
  void drop();

 private:
  static constexpr std::size_t kFull = std::size_t{1} << 20;

  bool ready(base::Nanoseconds time) const;

  int fd_;
  base::Fd own_;  // the same pipe or terminal, opened again without blocking
  std::string queue_;
  std::size_t sent_ = 0;
  int failure_ = 0;  // errno of the failed write
  bool is_told_ = false;
};

}  // namespace plait::launch
