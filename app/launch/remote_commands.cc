#include "launch/remote_commands.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "base/check.h"

namespace plait::launch {

base::Fd RemoteInputs::add(const std::string& secret) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) base::fail_errno("cannot make a pipe");
  base::Fd input(ends[0]);
  ends_.emplace_back(ends[1]);
  // There is room in a new pipe, and a reader: this process.
  const std::string line = secret + '\n';
  if (::write(ends[1], line.data(), line.size()) != static_cast<ssize_t>(line.size()) ||
      fcntl(ends[1], F_SETFL, O_NONBLOCK) != 0)
    base::fail_errno("cannot write to a pipe");
  return input;
}

void RemoteInputs::tell(int command) const {
  const char byte = static_cast<char>(command);
  for (const base::Fd& end : ends_) {
    [[maybe_unused]] const ssize_t written = ::write(end.get(), &byte, 1);
  }
}

CallerInput::CallerInput(int fd, base::Nanoseconds silence)
    : fd_(fd), silence_(silence), silent_at_(silence) {}

std::vector<int> CallerInput::read() {
  std::array<unsigned char, 256> bytes{};
  const ssize_t got = ::read(fd_, bytes.data(), bytes.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return {};
  if (got <= 0) {
    close();
    return {};
  }
  silent_at_ = comm::Deadline(silence_);
  is_stopped_ = bytes[got - 1] == SIGTSTP;
  std::vector<int> signals(bytes.begin(), bytes.begin() + got);
  std::erase(signals, kBeat);
  return signals;
}

bool CallerInput::is_silent() { return fd_ >= 0 && !is_stopped_ && silent_at_.is_over(); }

std::optional<base::Nanoseconds> CallerInput::ask_at() const {
  if (fd_ < 0 || is_stopped_) return std::nullopt;
  return std::min(silent_at_.at(), silent_at_.turn() + comm::Deadline::kLongestTurn);
}

}  // namespace plait::launch
