// Suppresses the lines that UCX prints about a connection whose peer is lost: up to six, which
// advise to change the kernel's limits. plait says in a sentence of its own which rank is lost, and
// why.
#pragma once

namespace plait::comm::ucx {

// While one exists, UCX prints no errors of TCP connections that it meets with in this thread. It
// prints all where the user has set UCX_LOG_LEVEL.
class Quiet {
 public:
  Quiet();
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
  ~Quiet();
};

}  // namespace plait::comm::ucx
