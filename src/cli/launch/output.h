// The ranks' output, merged line by line into our own: each line of rank 3 comes out whole, behind
// "[3] ", standard output and standard error apart.
#pragma once

#include <poll.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "cli/launch/lines.h"

namespace plait::cli {

// Writes as much as its reader takes, and never waits for him.
class Sink {
 public:
  explicit Sink(int fd) : fd_(fd) {}

  std::string& queue() { return queue_; }
  int fd() const { return fd_; }
  bool pending() const { return sent_ < queue_.size(); }
  bool full() const { return queue_.size() - sent_ > kFull; }
  bool broken() const { return broken_; }  // the reader has gone
  void write_some();                       // when poll() says that it may
  void drop();

 private:
  static constexpr std::size_t kFull = std::size_t{1} << 20;

  int fd_;
  std::string queue_;
  std::size_t sent_ = 0;
  bool broken_ = false;
};

class Output {
 public:
  Output();

  // Makes the rank's two pipes. Their far ends are the rank's standard output and error: close them
  // here once it has been started.
  std::array<base::Fd, 2> connect(int rank);

  // What to poll for, appended to `polls`; then what poll() said, from there on.
  void add_to(std::vector<pollfd>& polls);
  void serve(const pollfd* polls);

  // A sentence of our own, never in the middle of a rank's line.
  void say(const std::string& sentence);

  // All ranks have ended: takes what is still in their pipes.
  void finish();
  bool pending() const;
  void drop();  // gives up what no reader has taken

 private:
  struct Stream {
    base::Fd pipe;
    Lines lines;
    Sink* sink;
  };

  // One, if both go to the same place: else a line of one could come out within a line of the
  // other.
  bool merged() const { return sinks_[1] == nullptr; }
  Sink& sink(int fd) { return *sinks_[merged() ? 0 : fd - 1]; }
  bool read_some(Stream& stream);

  std::array<std::unique_ptr<Sink>, 2> sinks_;
  std::vector<Stream> streams_;
  std::vector<Stream*> polled_;
  std::vector<Sink*> polled_sinks_;
};

}  // namespace plait::cli
