// What plait writes where its reader may be slow, stuck or gone: as much as the reader takes, and
// without ever waiting for him.
#pragma once

#include <cerrno>
#include <cstddef>
#include <string>

#include "base/clock.h"
#include "base/fd.h"

namespace plait::cli {

class Sink {
 public:
  // `fd` is one of the standard descriptors. Others write to the same pipe or terminal, so its
  // flags stay as they are.
  explicit Sink(int fd);

  std::string& queue() { return queue_; }
  int fd() const { return own_ ? own_.get() : fd_; }  // to poll for POLLOUT
  bool pending() const { return sent_ < queue_.size(); }
  bool full() const { return queue_.size() - sent_ > kFull; }
  bool broken() const { return failure_ != 0; }     // the reader has gone
  bool hung_up() const { return failure_ == EIO; }  // and he was a terminal
  void write_some();                                // as much as can be written now
  void write_within(base::Nanoseconds time);  // all of it, or what the reader takes in this time
  void drop();

 private:
  static constexpr std::size_t kFull = std::size_t{1} << 20;

  bool ready(base::Nanoseconds time) const;

  int fd_;
  base::Fd own_;  // the same pipe or terminal, opened once more so as not to block
  std::string queue_;
  std::size_t sent_ = 0;
  int failure_ = 0;  // of the write that no reader took
};

}  // namespace plait::cli
