// Commands of plait run --hosts to the runs on other hosts while their ranks run.
//
// It writes to the standard input of each agent, which passes it on. After the line with the secret
// every byte is a command: the number of a signal for the ranks, SIGKILL to kill them at once, or
// 0, a beat, which only says that the caller is there. If the input ends, or nothing comes for a
// while, the caller is gone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "comm/core/deadline.h"

namespace plait::launch {

inline constexpr int kBeat = 0;

// The caller's ends, one for each agent.
class RemoteInputs {
 public:
  // Makes the next one and writes the secret. Returns the agent's end.
  base::Fd add(const std::string& secret);

  // Never waits. An agent that doesn't read misses commands.
  void tell(int command) const;

 private:
  std::vector<base::Fd> ends_;
};

// The end of a run that was called from another host.
class CallerInput {
 public:
  // `fd`: -1 if there is no caller. Without a byte for `silence`, the caller counts as gone.
  CallerInput(int fd, base::Nanoseconds silence);

  int fd() const { return fd_; }  // to poll for POLLIN; -1: there is no caller, or none any more
  void close() { fd_ = -1; }

  // Returns the signals that have come, without beats. The end of the input closes this.
  std::vector<int> read();

  // True if the caller counts as gone, which it never does while it is stopped by Ctrl-Z. Time in
  // which this process did not run is no silence, so it is to be asked again at a certain time.
  bool is_silent();
  std::optional<base::Nanoseconds> ask_at() const;

 private:
  int fd_;
  base::Nanoseconds silence_;
  comm::Deadline silent_at_;
  bool is_stopped_ = false;
};

}  // namespace plait::launch
