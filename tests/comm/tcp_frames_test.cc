// A rank over TCP that receives anything from another: frames that are cut off, too long, or
// nonsense, at any moment after ranks have met.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <thread>

#include "comm/control/frame.h"
#include "comm/core/whereabouts.h"
#include "comm/milestones.h"
#include "comm/tcp_case.h"
#include "plait/collectives.h"

namespace plait {
namespace {

using comm::tcp::Frame;
using comm::tcp::Kind;
using comm::tcp::kLastKind;
using comm::tcp::kMostTextBytes;
using std::chrono::milliseconds;

constexpr int kSlots = 3;
constexpr int kSlotBytes = 5000;
constexpr MailboxDesc kMailbox = {.slots = kSlots, .slot_bytes = kSlotBytes};

using TcpFrames = TcpCase;

// The connection of a rank in a world of two, below plait.
int connection_of_this_rank() {
  constexpr int kMostDescriptors = 256;
  for (int fd = 3; fd < kMostDescriptors; ++fd) {
    sockaddr_storage peer = {};
    socklen_t length = sizeof(peer);
    const bool is_connected = ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0;
    if (is_connected && peer.ss_family != AF_UNIX) return fd;
  }
  return -1;
}

void send_all(int socket, const std::string& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t sent = ::send(socket, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) return;  // the rank has closed it
    if (sent > 0) done += static_cast<std::size_t>(sent);
    if (sent < 0) std::this_thread::sleep_for(milliseconds(1));
  }
}

// The group has the number 1 on every rank, and its first mailbox the next.
constexpr std::uint32_t kMailboxNumber = 2;

std::string bytes_of(const Frame& frame) {
  return {reinterpret_cast<const char*>(&frame), sizeof(frame)};
}

class Nonsense {
 public:
  explicit Nonsense(int seed) : random_(static_cast<unsigned>(seed)) {}

  int below(int limit) { return std::uniform_int_distribution<int>(0, limit - 1)(random_); }

  // Most are of a kind that the receiver knows, with a text that a rank could send but for its
  // numbers and words.
  std::string frame() {
    const auto kind = static_cast<Kind>(below(static_cast<int>(kLastKind) + (seldom(20) ? 3 : 1)));
    Frame frame = {.kind = kind,
                   .receiver = seldom(8) ? number() : receiver_of(kind),
                   .slot = seldom(8) ? number() : static_cast<std::uint32_t>(below(kSlots))};
    if (seldom(20)) frame.magic = number();
    if (seldom(8)) frame.tag.sizes[0] = number();
    if (seldom(8)) frame.tag.operation = static_cast<Operation>(number());
    std::string bytes = kind == Kind::chunk || seldom(20) ? any_bytes() : text(kind);
    frame.bytes = seldom(20) ? odd_size() : bytes.size();
    bytes.resize(std::min<std::size_t>(bytes.size(), frame.bytes));
    return bytes_of(frame) + bytes;
  }

 private:
  static std::uint32_t receiver_of(Kind kind) {
    if (kind == Kind::question || kind == Kind::wake) return 0;
    return kind == Kind::chunk || kind == Kind::credit ? kMailboxNumber : 1;
  }

  bool seldom(int times) { return below(times) == 0; }

  std::uint32_t number() {
    return static_cast<std::uint32_t>(seldom(2) ? random_() : random_() % 5);
  }

  std::uint64_t odd_size() {
    const std::array<std::uint64_t, 6> sizes = {
        0, kSlotBytes + 1, kMostTextBytes + 1, UINT32_MAX, std::uint64_t{1} << 63, UINT64_MAX};
    return sizes[random_() % sizes.size()];
  }

  std::string any_bytes() {
    std::string bytes(static_cast<std::size_t>(below(kSlotBytes + 20)), '\0');
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<char>(below(256)); });
    return bytes;
  }

  std::string word() {
    const std::array<const char*, 14> words = {
        "0",          "1", "2", "-1", "77", "5 0 1", "99999999999999999999",
        "4294967296", "",  " ", "+",  "-",  "?",     "\n"};
    return words[random_() % words.size()];
  }

  std::string text(Kind kind) {
    const std::string one = word();
    const std::string two = word();
    const std::array<std::string, 7> agreements = {"withdrawn",
                                                   "cut off",
                                                   "joined " + one,
                                                   "part " + one + "\n3\n" + two,
                                                   "part 1\n" + one + "\n0 " + two,
                                                   "answer 1 " + one + "\n+" + two + "\n+" + one,
                                                   "refusal 1 " + one + "\nno\n+\n-" + two};
    switch (kind) {
      case Kind::failure:
      case Kind::report:
      case Kind::abort:
        return one + ' ' + two + " something is wrong";
      case Kind::gather:
        return one + ' ' + two + " mailbox of 3 slots";
      case Kind::agreement:
        return agreements[random_() % agreements.size()];
      case Kind::answer:
        return whereabouts();
      default:
        return "";
    }
  }

  std::string whereabouts() {
    std::string where(sizeof(comm::Whereabouts), '\0');
    for (char& byte : where) {
      if (seldom(10)) byte = static_cast<char>(below(16));
    }
    return where;
  }

  std::mt19937 random_;
};

// Calls what reads all kinds of frames. Throws Error, or returns: nonsense may have no effect.
void use(Communicator& comm) {
  Mailbox& mailbox = comm.cached_mailbox(kMailbox);
  for (int slot = 0; slot < kSlots; ++slot) {
    if (!mailbox.arrived(1, slot, {})) continue;
    const std::byte* chunk = mailbox.inbox(1, slot);
    EXPECT_LE(std::count(chunk, chunk + kSlotBytes, std::byte{0}), kSlotBytes);
    mailbox.release(1, slot);
  }
  sum_of_ones(comm);
  barrier(comm);
}

void expect_a_sentence(const Error& error) {
  EXPECT_FALSE(std::string(error.what()).empty());
  EXPECT_LT(std::strlen(error.what()), kMostTextBytes + 1000);
}

// With --gtest_shuffle, --gtest_random_seed=N chooses others.
constexpr int kRounds = 60;

TEST_F(TcpFrames, ThatAreNonsenseEndTheGroupAtMost) {
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(round);
    Milestones over;
    fork_ranks(2, [&](int rank) {
      Communicator comm = Communicator::connect(options_of(rank, 2, job_));
      set_timeout(comm, milliseconds(200));
      comm.cached_mailbox(kMailbox);
      if (rank == 1) {
        Nonsense nonsense(round + kRounds * testing::UnitTest::GetInstance()->random_seed());
        const int socket = connection_of_this_rank();
        ASSERT_GE(socket, 0);
        for (int frames = 1 + nonsense.below(12); frames > 0; --frames)
          send_all(socket, nonsense.frame());
        if (nonsense.below(4) == 0) over.await(0);  // or its kernel closes the connection
        ::_exit(0);
      }
      for (int turn = 0; turn < 3; ++turn) {
        try {
          use(comm);
        } catch (const Error& error) {
          expect_a_sentence(error);
        }
      }
      try {
        const Survivors left = comm.survivors();
        EXPECT_LE(left.comm.world(), 2);
      } catch (const Error& error) {
        expect_a_sentence(error);
      }
      over.reach(0);
    });
    if (HasFailure()) return;
  }
}

// The other rank ends in the middle of a frame.
TEST_F(TcpFrames, ThatAreCutOffEndTheGroup) {
  for (const std::size_t kept : {std::size_t{1}, sizeof(Frame) - 1, sizeof(Frame),
                                 sizeof(Frame) + 1, sizeof(Frame) + kSlotBytes - 1}) {
    fork_ranks(2, [&](int rank) {
      Communicator comm = Communicator::connect(options_of(rank, 2, job_));
      Mailbox& mailbox = comm.cached_mailbox(kMailbox);
      barrier(comm);
      if (rank == 1) {
        const Frame frame = {.kind = Kind::chunk, .receiver = kMailboxNumber, .bytes = kSlotBytes};
        std::string bytes = bytes_of(frame) + std::string(kSlotBytes, 'x');
        send_all(connection_of_this_rank(), bytes.substr(0, kept));
        ::_exit(0);
      }
      expect_error(Code::peer_lost, 1, [&] { mailbox.wait_arrived(1, 0, {}); });
    });
  }
}

// Longer than a slot, more than a rank has been given credit for, or in a slot that there is not.
TEST_F(TcpFrames, ThatDoNotFitAreRefused) {
  for (const char* what : {"too long", "too many", "no such slot"}) {
    SCOPED_TRACE(what);
    fork_ranks(2, [&](int rank) {
      Communicator comm = Communicator::connect(options_of(rank, 2, job_));
      Mailbox& mailbox = comm.cached_mailbox(kMailbox);
      barrier(comm);
      if (rank == 1) {
        Frame frame = {
            .kind = Kind::chunk, .receiver = kMailboxNumber, .slot = 1, .bytes = kSlotBytes};
        const bool is_long = std::string(what) == "too long";
        if (is_long) frame.bytes += 1;
        if (std::string(what) == "no such slot") frame.slot = kSlots;
        std::string bytes = bytes_of(frame) + std::string(frame.bytes, 'x');
        const int socket = connection_of_this_rank();
        for (int i = 0; i < 3; ++i) send_all(socket, bytes);
        expect_error(Code::peer_lost, [&] { mailbox.wait_arrived(0, 0, {}); });
        return;
      }
      expect_error(Code::peer_lost, 1, "a chunk came over it for which there was no room",
                   [&] { mailbox.wait_arrived(1, 0, {}); });
    });
  }
}

}  // namespace
}  // namespace plait
