// A thread that is not joined, for a call that may take longer than its caller can wait.
#pragma once

#include <csignal>
#include <thread>
#include <utility>

namespace plait::base {

// The thread takes none of the program's signals, nor do those that are started from it; only its
// own faults end the program as usual. Throws std::system_error if there can be no thread. `body`
// must own all that it uses.
template <class Body>
void start_detached(Body body) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT})
    ::sigdelset(&all, fault);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(std::move(body)).detach();
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace plait::base
