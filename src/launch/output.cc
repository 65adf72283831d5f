#include "launch/output.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"

namespace plait::launch {
namespace {

bool same_file(int one, int other) {
  struct stat a = {};
  struct stat b = {};
  return fstat(one, &a) == 0 && fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

}  // namespace

Output::Output(bool merges) {
  if (merges) sinks_[0] = std::make_unique<OutputStream>(STDOUT_FILENO);
  if (!merges || !same_file(STDOUT_FILENO, STDERR_FILENO))
    sinks_[1] = std::make_unique<OutputStream>(STDERR_FILENO);
}

std::array<base::Fd, 2> Output::connect(int rank) {
  const std::string prefix = fmt::format("[{}] ", rank);
  std::array<base::Fd, 2> far_ends;
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) base::fail_errno("cannot make a pipe");
    // Our end must not block; the rank's end must.
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    streams_.push_back({.pipe = base::Fd(ends[0]), .lines = Lines(prefix), .sink = &sink(fd)});
    far_ends[fd - 1] = base::Fd(ends[1]);
  }
  return far_ends;
}

void Output::add_to(std::vector<pollfd>& polls) {
  polled_.clear();
  polled_sinks_.clear();
  for (const auto& sink : sinks_) {
    if (sink == nullptr || !sink->pending()) continue;
    polls.push_back({.fd = sink->fd(), .events = POLLOUT, .revents = 0});
    polled_sinks_.push_back(sink.get());
  }
  for (Stream& stream : streams_) {
    // If our reader is gone, the rank should notice it as it would without us: by a broken pipe.
    // But writing to a terminal that is gone kills no process.
    if (stream.sink->broken() && !stream.sink->hung_up()) stream.pipe.reset();
    // A full queue stops the ranks, as a full pipe would without us.
    if (!stream.pipe || stream.sink->full()) continue;
    polls.push_back({.fd = stream.pipe.get(), .events = POLLIN, .revents = 0});
    polled_.push_back(&stream);
  }
}

void Output::serve(const pollfd* polls) {
  for (OutputStream* sink : polled_sinks_) {
    if ((polls++)->revents != 0) sink->write_some();
  }
  for (Stream* stream : polled_) {
    if ((polls++)->revents != 0) read_some(*stream);
  }
}

// False if nothing more can be read at the moment.
bool Output::read_some(Stream& stream) {
  std::array<char, 65536> bytes;  // NOLINT(*-member-init): read() fills it
  const ssize_t got = read(stream.pipe.get(), bytes.data(), bytes.size());
  if (got < 0) return errno == EINTR;
  if (got > 0) {
    stream.lines.take({bytes.data(), static_cast<std::size_t>(got)}, stream.sink->queue());
    if (stream.sink->broken()) stream.sink->drop();
    return true;
  }
  stream.lines.finish(stream.sink->queue());
  stream.pipe.reset();
  return false;
}

void Output::say(const std::string& sentence) {
  OutputStream& ours = sink(STDERR_FILENO);
  if (ours.broken()) return;
  ours.queue() += sentence + "\n";
  ours.write_some();
}

void Output::finish() {
  for (Stream& stream : streams_) {
    if (!stream.pipe) continue;
    while (read_some(stream)) {
    }
    stream.lines.finish(stream.sink->queue());
    stream.pipe.reset();
  }
}

bool Output::pending() const {
  return std::any_of(sinks_.begin(), sinks_.end(),
                     [](const auto& sink) { return sink != nullptr && sink->pending(); });
}

void Output::drop() {
  for (const auto& sink : sinks_) {
    if (sink != nullptr) sink->drop();
  }
}

}  // namespace plait::launch
