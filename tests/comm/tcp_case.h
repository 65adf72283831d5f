// What tests of ranks over TCP have in common: a port of their own, and ranks that meet there.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>

#include "comm/environment.h"
#include "conformance/ranks.h"
#include "plait/communicator.h"

namespace plait {

// A port of loopback that is kept from others, though rank 0 may listen at it.
struct Port {
  int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int number = 0;

  Port() {
    const int on = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    socklen_t length = sizeof(address);
    EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), length), 0);
    ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length);
    number = ntohs(address.sin_port);
  }
  void give_back() const { ::close(socket); }
  std::string address() const { return "127.0.0.1:" + std::to_string(number); }
};

// A process of its own beside the ranks: the sanitizers cannot fork beside a thread that allocates.
class Helper {
 public:
  explicit Helper(const std::function<void()>& work) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    work();
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  ~Helper() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    EXPECT_EQ(status, 0) << "the process beside the ranks failed";
  }
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;

 private:
  pid_t pid_;
};

inline int call(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return socket;
  ::close(socket);
  return -1;
}

inline CommunicatorOptions options_of(int rank, int world, const std::string& job) {
  return {.transport = "tcp", .place = Place{.rank = rank, .world = world, .job = job}};
}

class TcpCase : public testing::Test {
 protected:
  ~TcpCase() override { port_.give_back(); }
  Port port_;
  std::string job_ = conformance::fresh_job();
  Environment environment_{Environment::Variables{{"PLAIT_RENDEZVOUS", port_.address()}}};
};

}  // namespace plait
