#include "conformance/ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "comm/session/state.h"
#include "plait/collectives.h"

namespace plait {

std::string fresh_job() {
  static std::atomic<int> count{0};
  return "test-" + std::to_string(::getpid()) + "-" + std::to_string(count.fetch_add(1));
}

CommunicatorOptions options_of(int rank, int world, const std::string& job,
                               const std::string& transport) {
  return {.transport = transport, .place = Place{.rank = rank, .world = world, .job = job}};
}

CommunicatorOptions shm_options(int rank, int world, const std::string& job) {
  return options_of(rank, world, job, "shm");
}

float sum_of_ones(Communicator& comm) {
  float sum = 1;
  all_reduce({&sum, 1}, comm);
  return sum;
}

void poll_all_reduce(Communicator& comm) {
  float sum = 1;
  Pending pending = start_all_reduce({&sum, 1}, {&sum, 1}, comm);
  while (!pending.done()) std::this_thread::yield();
}

void set_timeout(Communicator& comm, std::chrono::nanoseconds timeout) {
  comm.state().set_timeout(timeout.count());
}

void run_as_threads(int world, const Body& body, const CommunicatorOptions& options) {
  EXPECT_NO_THROW(run_in_threads(world, body, options));
}

namespace {

[[noreturn]] void be_child(const std::function<void(int)>& child, int rank) {
  int status = 0;
  try {
    child(rank);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << rank << ": " << error.what();
  }
  if (testing::Test::HasFailure()) status = 1;
  std::cout.flush();
  // Skips destructors, which belong to the parent.
  ::_exit(status);
}

}  // namespace

void fork_ranks(int world, const std::function<void(int rank)>& child, int seconds) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < world; ++rank) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) be_child(child, rank);
    children.push_back(pid);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  for (int rank = 0; rank < world; ++rank) {
    int status = 0;
    while (::waitpid(children[rank], &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "rank " << rank << " hangs; killed";
        ::kill(children[rank], SIGKILL);
        ::waitpid(children[rank], &status, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(status, 0) << "rank " << rank << " of " << world << " failed";
  }
}

void run_in_processes(int world, const Body& body, const CommunicatorOptions& options) {
  const std::string job = fresh_job();
  fork_ranks(world, [&](int rank) {
    CommunicatorOptions mine = options;
    mine.transport = "shm";
    mine.place = Place{.rank = rank, .world = world, .job = job};
    Communicator comm = Communicator::connect(mine);
    body(comm);
  });
}

namespace {

// A port of loopback that is kept from others while this lives, though rank 0 may listen at it.
class KeptPort {
 public:
  KeptPort() {
    const int on = 1;
    ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    ::setenv("PLAIT_RENDEZVOUS", address().c_str(), 1);
  }
  KeptPort(const KeptPort&) = delete;
  KeptPort& operator=(const KeptPort&) = delete;
  ~KeptPort() {
    ::unsetenv("PLAIT_RENDEZVOUS");
    ::close(socket_);
  }

 private:
  std::string address() const {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    socklen_t length = sizeof(address);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), length), 0);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length);
    return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }

  int socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
};

void be_rank(const Place& place, const Body& body, CommunicatorOptions options) {
  options.place = place;
  Communicator comm = Communicator::connect(options);
  body(comm);
}

// The places of a start's ranks. `hosts` may be empty.
std::vector<Place> places_on(const std::vector<int>& hosts, int world) {
  const std::string job = fresh_job();
  std::vector<Place> places;
  for (int rank = 0; rank < world; ++rank) {
    places.push_back({.rank = rank, .world = world, .job = job});
    if (!hosts.empty()) places.back().host = std::to_string(hosts[rank]);
  }
  return places;
}

// Forks ranks that talk over this transport.
void run_over(const std::string& transport, const std::vector<int>& hosts, int world,
              const Body& body, CommunicatorOptions options) {
  options.transport = transport;
  const KeptPort port;
  const auto places = places_on(hosts, world);
  fork_ranks(world, [&](int rank) { be_rank(places[rank], body, options); });
}

}  // namespace

RunRanks over_hosts(const std::vector<int>& hosts, const std::string& transport) {
  return [=](int world, const Body& body, const CommunicatorOptions& options) {
    run_over(transport, hosts, world, body, options);
  };
}

RunRanks threads_over_hosts(const std::vector<int>& hosts) {
  return [hosts](int world, const Body& body, const CommunicatorOptions& options) {
    CommunicatorOptions mine = options;
    mine.transport = "tcp";
    const KeptPort port;
    std::vector<std::jthread> ranks;
    for (const Place& place : places_on(hosts, world)) {
      ranks.emplace_back(
          [&, place] { EXPECT_NO_THROW(be_rank(place, body, mine)) << "rank " << place.rank; });
    }
    ranks.clear();
  };
}

void run_over_tcp(int world, const Body& body, const CommunicatorOptions& options) {
  over_hosts({})(world, body, options);
}

void run_over_ucx(int world, const Body& body, const CommunicatorOptions& options) {
  over_hosts({}, "ucx")(world, body, options);
}

void run_threads_over_tcp(int world, const Body& body, const CommunicatorOptions& options) {
  threads_over_hosts({})(world, body, options);
}

void run_under_mpi(int world, const Body& body, const CommunicatorOptions& options) {
  CommunicatorOptions mine = options;
  mine.transport = "mpi";
  Communicator comm = Communicator::connect(mine);
  ASSERT_EQ(comm.world(), world);
  body(comm);
}

}  // namespace plait
