// Ranks over TCP that have a secret, and outsiders that have not.
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "comm/meet/handshake.h"
#include "comm/milestones.h"
#include "comm/tcp_case.h"
#include "plait/collectives.h"

namespace plait {
namespace {

using comm::tcp::Challenge;
using comm::tcp::Hello;
using comm::tcp::Message;
using comm::tcp::MessageKind;
using comm::tcp::Proofs;
using comm::tcp::prove;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kSecret = "a secret of the test";

class TcpSecret : public TcpCase {
 protected:
  // The secret of this process, from now on.
  static void set_secret(const std::string& secret) {
    if (secret.empty()) {
      ::unsetenv("PLAIT_SECRET");
    } else {
      ::setenv("PLAIT_SECRET", secret.c_str(), 1);
    }
  }

  void sum_up(int rank, int world) {
    CommunicatorOptions options = options_of(rank, world, job_);
    options.timeout = seconds(20);
    Communicator comm = Communicator::connect(options);
    EXPECT_EQ(sum_of_ones(comm), static_cast<float>(world));
  }

  // Expects that two ranks with these secrets refuse each other. Rank 0 has little time, because
  // rank 1 won't come.
  void refuse(const std::pair<std::string, std::string>& secrets, const std::string& by_rank_0,
              const std::string& by_rank_1) {
    Milestones started;
    fork_ranks(2, [&](int rank) {
      started.reach(0);
      started.await(0, 2);
      set_secret(rank == 0 ? secrets.first : secrets.second);
      CommunicatorOptions options = options_of(rank, 2, job_);
      options.timeout = rank == 0 ? milliseconds(1500) : milliseconds(40000);
      const Code code = rank == 0 ? Code::timeout : Code::invalid_argument;
      const Error error = expect_error(code, [&] { Communicator::connect(options); });
      EXPECT_EQ(error.what(), rank == 0 ? by_rank_0 : by_rank_1);
    });
  }

  // An outsider knows all that can be read on the network.
  Hello hello(int rank, int world) const {
    return {.job = job_,
            .rank = rank,
            .to = 0,
            .world = world,
            .has_secret = true,
            .nonce = base::random_name(),
            .info = info()};
  }

  static comm::tcp::PeerInfo info() {
    comm::tcp::PeerInfo info = comm::tcp::info_of_this_process(1);
    info.transport = "tcp";
    return info;
  }
};

// A connection in whose other end a rank may be.
class Line {
 public:
  explicit Line(int socket) : socket_(socket) {}
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  bool is_open() const { return static_cast<bool>(socket_); }
  void send_message(MessageKind kind, const std::string& text) {
    comm::tcp::send_message(socket_, kind, text);
  }

  // Null where the other end is closed.
  std::optional<Message> receive() {
    std::string bytes;
    for (bool open = true; open;) {
      pollfd asked = {.fd = socket_.get(), .events = POLLIN, .revents = 0};
      ::poll(&asked, 1, 20000);
      auto message = comm::tcp::read_message(socket_, bytes, comm::tcp::kMostWelcomeBytes, open);
      if (message) return message;
    }
    return std::nullopt;
  }

 private:
  base::Fd socket_;
};

int call_until_heard(int port) {
  for (;;) {
    if (const int socket = call(port); socket >= 0) return socket;
    std::this_thread::sleep_for(milliseconds(1));
  }
}

TEST_F(TcpSecret, RanksThatKnowItMeet) {
  fork_ranks(4, [&](int rank) {
    set_secret(kSecret);
    sum_up(rank, 4);
  });
}

TEST_F(TcpSecret, AnotherOneIsNamedOnBothSides) {
  refuse({kSecret, "another secret of a rank"},
         "rank 1 of 2 has not come within 1.50 s; a caller from 127.0.0.1 said that it was rank 1 "
         "and did not know the secret of rank 0: PLAIT_SECRET must be the same for all ranks",
         "rank 1 called 127.0.0.1 to meet rank 0: what answers there does not know the secret of "
         "rank 1: PLAIT_SECRET must be the same for all ranks");
}

// Ranks that meet through a store have a secret from there, and PLAIT_SECRET beside it.
TEST_F(TcpSecret, ItCountsBesideTheOneOfAStore) {
  for (const bool is_same : {true, false}) {
    const Store store(2);
    fork_ranks(2, [&](int rank) {
      set_secret(is_same || rank == 0 ? kSecret : "another secret of a rank");
      CommunicatorOptions options = options_of(rank, 2, job_);
      options.all_gather = store.all_gather(rank);
      options.timeout = is_same ? seconds(20) : seconds(2);
      if (is_same) {
        Communicator comm = Communicator::connect(options);
        return barrier(comm);
      }
      expect_error(Code::timeout,
                   rank == 0 ? "said that it was rank 1 and did not know the "
                               "secret of rank 0: PLAIT_SECRET must be"
                             : "what answers there does not know the secret "
                               "of rank 1: PLAIT_SECRET must be",
                   [&] { Communicator::connect(options); });
    });
  }
}

TEST_F(TcpSecret, AShortOneIsRefused) {
  set_secret("guess me");
  const Error error =
      expect_error(Code::invalid_argument, [&] { Communicator::connect(options_of(0, 2, job_)); });
  EXPECT_STREQ(error.what(),
               "PLAIT_SECRET has 8 characters; it needs 16 or more, so that it can't be guessed: "
               "openssl rand -hex 16 makes a good one");
  set_secret("");
}

// An outsider sends a proof that a rank once sent, one that rank 0 has just sent it, and others. It
// is dropped each time, and the ranks don't notice.
TEST_F(TcpSecret, ProofsOfOtherConnectionsOpenNothing) {
  const Hello recorded = hello(1, 3);
  const std::string old_nonce = base::random_name();
  const Proofs old = prove(kSecret, write(recorded), old_nonce);
  const auto try_to_enter = [&](const Hello& mine, const auto& proof_for) {
    Line line(call_until_heard(port_.number));
    line.send_message(MessageKind::hello, write(mine));
    const auto message = line.receive();
    ASSERT_TRUE(message && message->kind == MessageKind::challenge);
    const auto challenge = comm::tcp::read_challenge(message->text);
    ASSERT_TRUE(challenge);
    EXPECT_EQ(challenge->proof, prove(kSecret, write(mine), challenge->nonce).listener);
    line.send_message(MessageKind::proof, proof_for(*challenge));
    EXPECT_FALSE(line.receive()) << "rank 0 has answered an outsider";
  };
  Milestones tried;
  const Helper outsider([&] {
    try_to_enter(recorded, [&](const Challenge&) { return old.caller; });
    try_to_enter(hello(1, 3), [](const Challenge& challenge) { return challenge.proof; });
    try_to_enter(hello(2, 3), [](const Challenge&) { return std::string(); });
    try_to_enter(hello(2, 3), [](const Challenge& challenge) {
      return prove("another secret", "hello", challenge.nonce).caller;
    });
    tried.reach(0);
  });
  fork_ranks(3, [&](int rank) {
    set_secret(kSecret);
    if (rank == 2) tried.await(0);  // rank 0 still listens as long as this rank is missing
    sum_up(rank, 3);
  });
}

// An outsider sits at the address of rank 0.
TEST_F(TcpSecret, ARankProvesNothingToAnOutsider) {
  for (const auto& answer :
       {std::pair{MessageKind::challenge,
                  write(Challenge{.nonce = std::string(32, 'a'), .proof = "b"})},
        std::pair{MessageKind::welcome, std::string("come in")}}) {
    const Port port;
    ASSERT_EQ(::listen(port.socket, 1), 0);
    const Helper outsider([&] {
      Line line(::accept(port.socket, nullptr, nullptr));
      const auto message = line.receive();
      ASSERT_TRUE(message && message->kind == MessageKind::hello);
      EXPECT_FALSE(contains(message->text, kSecret));
      line.send_message(answer.first, answer.second);
      const auto next = line.receive();
      EXPECT_TRUE(!next || (next->kind == MessageKind::refusal && next->text.empty()));
    });
    const Environment environment(
        Environment::Variables{{"PLAIT_RENDEZVOUS", port.address()}, {"PLAIT_SECRET", kSecret}});
    expect_error(Code::invalid_argument, "does not know the secret of rank 1",
                 [&] { Communicator::connect(options_of(1, 2, job_)); });
    port.give_back();
  }
}

// Outsiders say all that they can without the secret, slowly or at once, as long as the ranks meet.
[[noreturn]] void disturb(int port, const std::string& hello) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::string slow = "HTLP";
  slow.append("\0\0\0\0\0\x01\0\0", 8);
  slow += hello;
  std::vector<std::pair<int, std::size_t>> lines;  // with how much of the slow words was said
  for (std::size_t turn = 0;; ++turn) {
    if (lines.size() < 40) {
      if (const int socket = call(port); socket >= 0) lines.emplace_back(socket, 0);
    }
    for (auto& [socket, said] : lines) {
      if (::send(socket, &slow[said++ % slow.size()], 1, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
        continue;
      ::close(std::exchange(socket, -1));
    }
    std::erase_if(lines, [](const auto& line) { return line.first < 0; });
    if (const int socket = call(port); socket >= 0 && turn % 2 == 0) {
      const base::Fd mine(socket);
      comm::tcp::send_message(mine, turn % 4 == 0 ? MessageKind::hello : MessageKind::proof, hello);
    } else if (socket >= 0) {
      const std::string nonsense(20'000, 'x');
      ::send(socket, nonsense.data(), nonsense.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      ::close(socket);
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
}

TEST_F(TcpSecret, OutsidersDelayNoRank) {
  const pid_t disturbing = ::fork();
  if (disturbing == 0) disturb(port_.number, write(hello(1, 3)));
  fork_ranks(3, [&](int rank) {
    set_secret(kSecret);
    std::this_thread::sleep_for(milliseconds(200 * rank));
    sum_up(rank, 3);
  });
  ::kill(disturbing, SIGKILL);
  ::waitpid(disturbing, nullptr, 0);
}

// Any process may say that it is a rank of another build: without the secret it ends nothing.
TEST_F(TcpSecret, AnOutsiderOfAnotherBuildEndsNothing) {
  Milestones tried;
  const Helper outsider([&] {
    Hello other = hello(1, 2);
    other.info.build = "9.9.9+other";
    {
      Line line(call_until_heard(port_.number));
      line.send_message(MessageKind::hello, write(other));
      const auto message = line.receive();
      EXPECT_TRUE(message && message->kind == MessageKind::challenge);
    }
    Line line(call_until_heard(port_.number));
    line.send_message(MessageKind::hello, "9.9.9+other and a layout of the future");
    const auto message = line.receive();
    ASSERT_TRUE(message && message->kind == MessageKind::mismatch);
    EXPECT_TRUE(contains(message->text, "runs plait 9.9.9+other, rank 0 plait ")) << message->text;
    tried.reach(0);
  });
  fork_ranks(2, [&](int rank) {
    set_secret(kSecret);
    if (rank == 1) tried.await(0);
    sum_up(rank, 2);
  });
}

}  // namespace
}  // namespace plait
