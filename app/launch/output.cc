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
  if (merges) outputs_[0] = std::make_unique<OutputStream>(STDOUT_FILENO);
  if (!merges || !same_file(STDOUT_FILENO, STDERR_FILENO))
    outputs_[1] = std::make_unique<OutputStream>(STDERR_FILENO);
}

std::array<base::Fd, 2> Output::connect(int rank) {
  const std::string prefix = fmt::format("[{}] ", rank);
  std::array<base::Fd, 2> far_ends;
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) base::fail_errno("cannot make a pipe");
    // Our end must not block; the rank's end must.
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    pipes_.push_back({.fd = base::Fd(ends[0]), .lines = Lines(prefix), .output = &output_for(fd)});
    far_ends[fd - 1] = base::Fd(ends[1]);
  }
  return far_ends;
}

void Output::add_to(std::vector<pollfd>& polls) {
  polled_pipes_.clear();
  polled_outputs_.clear();
  for (const auto& output : outputs_) {
    if (output == nullptr || !output->pending()) continue;
    polls.push_back({.fd = output->fd(), .events = POLLOUT, .revents = 0});
    polled_outputs_.push_back(output.get());
  }
  for (RankPipe& pipe : pipes_) {
    // If our reader is gone, the rank should notice it as it would without us: by a broken pipe.
    // But writing to a terminal that is gone, or to a full disk, kills no process.
    if (pipe.output->reader_is_gone()) pipe.fd.reset();
    // A full queue stops the ranks, as a full pipe would without us.
    if (!pipe.fd || pipe.output->full()) continue;
    polls.push_back({.fd = pipe.fd.get(), .events = POLLIN, .revents = 0});
    polled_pipes_.push_back(&pipe);
  }
}

void Output::serve(const pollfd* polls) {
  for (OutputStream* output : polled_outputs_) {
    if ((polls++)->revents != 0) output->write_some();
  }
  for (RankPipe* pipe : polled_pipes_) {
    if ((polls++)->revents != 0) read_some(*pipe);
  }
}

// False if nothing more can be read at the moment.
bool Output::read_some(RankPipe& pipe) {
  std::array<char, 65536> bytes;  // NOLINT(*-member-init): read() fills it
  const ssize_t got = read(pipe.fd.get(), bytes.data(), bytes.size());
  if (got < 0) return errno == EINTR;
  if (got > 0) {
    pipe.lines.take({bytes.data(), static_cast<std::size_t>(got)}, pipe.output->queue());
    if (pipe.output->broken()) pipe.output->drop();
    return true;
  }
  pipe.lines.finish(pipe.output->queue());
  pipe.fd.reset();
  return false;
}

void Output::say(const std::string& sentence) {
  OutputStream& ours = output_for(STDERR_FILENO);
  if (ours.broken()) return;
  ours.queue() += sentence + "\n";
  ours.write_some();
}

void Output::finish() {
  for (RankPipe& pipe : pipes_) {
    if (!pipe.fd) continue;
    while (read_some(pipe)) {
    }
    pipe.lines.finish(pipe.output->queue());
    pipe.fd.reset();
  }
}

std::string Output::take_failure() {
  for (const auto& output : outputs_) {
    if (output == nullptr) continue;
    if (std::string failure = output->take_failure(); !failure.empty()) return failure;
  }
  return "";
}

bool Output::pending() const {
  return std::any_of(outputs_.begin(), outputs_.end(),
                     [](const auto& output) { return output != nullptr && output->pending(); });
}

void Output::drop() {
  for (const auto& output : outputs_) {
    if (output != nullptr) output->drop();
  }
}

}  // namespace plait::launch
