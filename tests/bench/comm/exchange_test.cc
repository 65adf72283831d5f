#include "comm/exchange.h"

#include <gtest/gtest.h>
#include <sched.h>

#include "comm/ranks.h"
#include "plait/error.h"

namespace plait::bench {
namespace {

template <class Exchange>
void use(Exchange& exchange, int rank) {
  prove(exchange, [](auto& chunks, int r) { there_and_back(chunks, r); }, rank);
  prove(exchange, [](auto& chunks, int r) { one_way(chunks, r); }, rank);
  prove(exchange, [](auto& chunks, int r) { swap_chunks(chunks, r); }, rank);
}

class ExchangeTest : public testing::TestWithParam<std::string> {};

TEST_P(ExchangeTest, BringsEveryByte) {
  for (const int ranks : {2, 3}) {
    EXPECT_NO_THROW(run_ranks({.ranks = ranks, .transport = GetParam()}, [](BenchRank& self) {
      for (const std::size_t bytes : {0, 1, 8, 64, 1000, 65536}) {
        MailboxExchange mailbox(self.comm, bytes);
        use(mailbox, self.comm.rank());
        BareExchange bare(self, bytes);
        use(bare, self.comm.rank());
      }
    }));
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, ExchangeTest, testing::Values("shm", "threads"),
                         [](const auto& test) { return test.param; });

TEST(StampedBuffers, DamageIsNoticed) {
  std::vector<std::byte> chunk(1000);
  for (const std::size_t damaged : {0, 8, 999}) {
    StampedBuffers receiver(chunk.size(), 1);
    StampedBuffers sender(chunk.size(), 0);
    sender.load(chunk.data());
    chunk[damaged] ^= std::byte{0x80};
    EXPECT_THROW(
        {
          receiver.unload(chunk.data());
          receiver.verify();
        },
        Error)
        << damaged;
  }
}

TEST(StampedBuffers, LostChunkIsNoticed) {
  std::vector<std::byte> chunk(64);
  StampedBuffers sender(chunk.size(), 0);
  StampedBuffers receiver(chunk.size(), 1);
  sender.load(chunk.data());
  sender.load(chunk.data());
  EXPECT_THROW(receiver.unload(chunk.data()), Error);
}

TEST(RunRanks, FailureOfAnotherRankIsThrownHere) {
  try {
    run_ranks({.ranks = 2, .transport = "shm"}, [](BenchRank& self) {
      if (self.comm.rank() == 1) throw Error(Code::system, "meant to fail");
    });
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::peer_lost);
    EXPECT_EQ(error.culprit(), 1);
  }
}

TEST(RunRanks, ProcessorsAreGivenBack) {
  cpu_set_t before, after;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  run_ranks({.ranks = 2, .transport = "shm"}, [](BenchRank&) {});
  ASSERT_EQ(::sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

}  // namespace
}  // namespace plait::bench
