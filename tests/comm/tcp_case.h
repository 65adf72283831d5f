// Helpers of tests of ranks over TCP: a port of their own, and ranks that meet there.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "comm/environment.h"
#include "conformance/await.h"
#include "conformance/descriptors.h"
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

// Acts as a framework's store: it brings each rank's text to all, by a pipe to and from each.
class Store {
 public:
  explicit Store(int world) : pipes_(world), helper_([this] { serve(); }) {}

  AllGatherBytes all_gather(int rank) const {
    return [this, rank](const std::string& mine) {
      EXPECT_GT(::write(pipes_.in[rank][1], mine.data(), mine.size()), 0);
      const std::string all = read_from(pipes_.out[rank][0]);
      std::vector<std::string> parts(1);
      for (const char c : all) {
        if (c == '\n') {
          parts.emplace_back();
        } else {
          parts.back() += c;
        }
      }
      parts.pop_back();
      return parts;
    };
  }

 private:
  using Ends = std::array<int, 2>;
  struct Pipes {
    std::vector<Ends> in;
    std::vector<Ends> out;

    explicit Pipes(int world) : in(world), out(world) {
      for (auto* pipes : {&in, &out}) {
        for (Ends& ends : *pipes) EXPECT_EQ(::pipe(ends.data()), 0);
      }
    }
    Pipes(const Pipes&) = delete;
    Pipes& operator=(const Pipes&) = delete;
    ~Pipes() {
      for (const auto* pipes : {&in, &out}) {
        for (const Ends& ends : *pipes) {
          for (const int end : ends) ::close(end);
        }
      }
    }
  };

  static std::string read_from(int pipe) {
    std::vector<char> text(1 << 16);
    const ssize_t bytes = ::read(pipe, text.data(), text.size());
    EXPECT_GT(bytes, 0);
    return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(bytes, 0))};
  }

  void serve() const {
    std::string all;
    for (const Ends& ends : pipes_.in) all += read_from(ends[0]) + '\n';
    for (const Ends& ends : pipes_.out) EXPECT_GT(::write(ends[1], all.data(), all.size()), 0);
  }

  Pipes pipes_;
  Helper helper_;  // last: it uses the pipes
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

// Options of a rank on a simulated host.
inline CommunicatorOptions options_of(int rank, int world, const std::string& job, int host) {
  CommunicatorOptions options = options_of(rank, world, job);
  options.place->host = std::to_string(host);
  return options;
}

// A test leaves no descriptor open: later ones, of ranks that may open only a few, would lack it. A
// lookup of a name that a deadline cut off goes on for a while, and closes its own at its end.
class TcpCase : public testing::Test {
 protected:
  ~TcpCase() override {
    port_.give_back();
    EXPECT_TRUE(await("as many descriptors are open as before the test",
                      [this] { return open_descriptors() == before_; }));
  }

 private:
  const int before_ = open_descriptors();

 protected:
  Port port_;
  std::string job_ = fresh_job();
  Environment environment_{Environment::Variables{{"PLAIT_RENDEZVOUS", port_.address()}}};
};

}  // namespace plait
