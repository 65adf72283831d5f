#include "comm/session/mailbox_cache.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <memory>

#include "comm/session/transports.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait::comm {
namespace {

// A group of one rank, by itself.
class MailboxCacheTest : public testing::Test {
 protected:
  MailboxCacheTest()
      : transport_(select_transport("threads", kSite).create(kSite)),
        membership_(*transport_),
        tasks_(membership_, calls_),
        mailboxes_(*transport_, membership_, tasks_) {
    mailboxes_.open(std::nullopt, kCollectives);
  }

  static inline const Site kSite = {.place = {.rank = 0, .world = 1}};
  static constexpr MailboxDesc kCollectives = {.slots = 2, .slot_bytes = 64};
  static constexpr Tag kWhy = {.operation = Operation::all_gather_matmul};

  std::unique_ptr<Transport> transport_;
  Membership membership_;
  CallCounter calls_;
  TaskQueue tasks_;
  MailboxCache mailboxes_;
};

TEST_F(MailboxCacheTest, MakesOneOfEachDescription) {
  const MailboxDesc desc = {.slots = 1, .slot_bytes = 8};
  Mailbox& first = mailboxes_.cached(desc);
  EXPECT_EQ(&mailboxes_.cached(desc), &first);
  EXPECT_NE(&mailboxes_.cached({.slots = 1, .slot_bytes = 16}), &first);
  EXPECT_EQ(calls_.begin(), 3U) << "making one is a call, and finding one is none";
}

TEST_F(MailboxCacheTest, OperatorsShareTheFirstThatIsLargeEnough) {
  const auto of = [&](int slots, std::size_t bytes) {
    const MailboxDesc desc = {.slots = slots, .slot_bytes = bytes};
    return &mailboxes_.of_operators(desc, desc, kWhy);
  };
  const Mailbox::State* small = of(2, 64);
  EXPECT_NE(small, &mailboxes_.of_collectives());
  const Mailbox::State* large = of(4, 64);
  EXPECT_NE(large, small);
  EXPECT_EQ(of(1, 32), small);
  EXPECT_EQ(of(3, 64), large);
  EXPECT_NE(of(4, 65), large);
}

TEST_F(MailboxCacheTest, MakesOperatorsAsManyBytesAsAreWanted) {
  const Mailbox::State& made =
      mailboxes_.of_operators({.slots = 1, .slot_bytes = 8}, {.slots = 3, .slot_bytes = 80}, kWhy);
  EXPECT_EQ(made.desc(), (MailboxDesc{.slots = 3, .slot_bytes = 80}));
}

TEST_F(MailboxCacheTest, CountsWhatAllOfThemHold) {
  const std::size_t at_first = mailboxes_.held_bytes();
  auto made = mailboxes_.make({.slots = 4, .slot_bytes = 4096});
  EXPECT_GE(mailboxes_.held_bytes(), at_first + std::size_t{4} * 4096);
  made.reset();
  EXPECT_EQ(mailboxes_.held_bytes(), at_first);
  mailboxes_.clear();
  EXPECT_EQ(mailboxes_.held_bytes(), 0U);
}

// A forked child may not close what its parent still uses, so nothing is given back.
TEST_F(MailboxCacheTest, ForgetsWithoutClosingAny) {
  const MailboxDesc desc = {.slots = 4, .slot_bytes = 4096};
  const Mailbox& cached = mailboxes_.cached(desc);
  const Mailbox::State& shared = mailboxes_.of_operators(desc, desc, kWhy);
  const Mailbox::State& of_collectives = mailboxes_.of_collectives();
  const std::size_t held = mailboxes_.held_bytes();
  mailboxes_.forget();
  mailboxes_.clear();
  EXPECT_EQ(mailboxes_.held_bytes(), held);
  EXPECT_EQ(cached.desc(), desc) << "what was forgotten still exists";

  // Close them, since this process is the one that owns them.
  const std::unique_ptr<const Mailbox> one(&cached);
  const std::unique_ptr<const Mailbox::State> others[] = {
      std::unique_ptr<const Mailbox::State>(&shared),
      std::unique_ptr<const Mailbox::State>(&of_collectives)};
}

TEST_F(MailboxCacheTest, RefusesBeforeItBeginsACall) {
  expect_error(Code::invalid_argument, "0 slots",
               [&] { mailboxes_.make({.slots = 0, .slot_bytes = 8}); });
  EXPECT_EQ(calls_.begin(), 1U);
}

TEST_F(MailboxCacheTest, GivesOutNothingOnceTheGroupHasFailed) {
  const MailboxDesc desc = {.slots = 1, .slot_bytes = 8};
  mailboxes_.cached(desc);
  membership_.group().fail({.code = Code::peer_lost, .culprit = 0, .sentence = "lost"});
  expect_error(Code::peer_lost, [&] { mailboxes_.cached(desc); });
  expect_error(Code::peer_lost, [&] { mailboxes_.of_operators(desc, desc, kWhy); });
  expect_error(Code::peer_lost, [&] { mailboxes_.make(desc); });
}

// Pages that this process has touched for the first time.
std::int64_t faults() {
  rusage used = {};
  ::getrusage(RUSAGE_SELF, &used);
  return used.ru_minflt;
}

// A program may have thirty groups. Those of eight ranks once took 200 MB each when they were made.
TEST(MailboxOfCollectives, TakesPagesWhenItIsUsed) {
  run_as_threads(8, [](Communicator& comm) {
    barrier(comm);
    const std::int64_t before = faults();
    for (int round = 0; round < 10; ++round) {
      auto part = comm.split(0, comm.rank());
      float one = 1;
      all_reduce({&one, 1}, *part);
      EXPECT_EQ(one, 8);
    }
    barrier(comm);
    EXPECT_LT(faults() - before, 10 * 8 * 7 * 50);
  });
}

}  // namespace
}  // namespace plait::comm
