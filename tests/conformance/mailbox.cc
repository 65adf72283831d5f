#include "conformance/mailbox.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "comm/core/mailbox.h"
#include "plait/collectives.h"

namespace plait::conformance {

// A program may link all suites and run only some.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MailboxConformance);

namespace {

std::uint8_t pattern(int from, int to, int slot, std::uint32_t number, std::size_t byte) {
  return static_cast<std::uint8_t>(from * 31 + to * 17 + slot * 7 + static_cast<int>(number) * 3 +
                                   static_cast<int>(byte) * 5 + 1);
}

}  // namespace

void send(Mailbox& mailbox, int from, int to, int slot, std::uint32_t number, std::size_t bytes) {
  std::byte* out = mailbox.outbox(to, slot);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = std::byte{pattern(from, to, slot, number, i)};
  mailbox.post(to, slot, {.chunk = number}, bytes);
}

void expect_chunk(Mailbox& mailbox, int from, int to, int slot, std::uint32_t number,
                  std::size_t bytes) {
  mailbox.wait_arrived(from, slot, {.chunk = number});
  ASSERT_EQ(mailbox.inbox_bytes(from, slot), bytes);
  const std::byte* in = mailbox.inbox(from, slot);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < bytes; ++i)
    wrong += in[i] != std::byte{pattern(from, to, slot, number, i)} ? 1 : 0;
  EXPECT_EQ(wrong, 0U) << "bytes of chunk " << number << " from " << from << " to " << to
                       << " in slot " << slot;
  mailbox.release(from, slot);
}

TEST_P(MailboxConformance, BringsEveryChunkToItsSlot) {
  run([&](Communicator& comm) {
    const auto mailbox = comm.make_mailbox({.slots = 3, .slot_bytes = 1000, .poison = true});
    const int me = comm.rank();
    for (std::uint32_t number = 0; number < 5;
         ++number) {  // more epochs than buffers, without a barrier in between
      for (int peer = 0; peer < world(); ++peer) {
        for (int slot = 0; slot < 3; ++slot)
          send(*mailbox, me, peer, slot, number, std::size_t{number} * 250);
      }
      for (int peer = 0; peer < world(); ++peer) {
        for (int slot = 2; slot >= 0; --slot)
          expect_chunk(*mailbox, peer, me, slot, number, std::size_t{number} * 250);
      }
    }
  });
}

TEST_P(MailboxConformance, LeavesThePosterWhatItHasPosted) {
  run([&](Communicator& comm) {
    const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = 512});
    const int me = comm.rank();
    const int peer = (me + 1) % world();
    const int source = (me + world() - 1) % world();
    const std::byte* posted = mailbox->outbox(peer, 0);
    send(*mailbox, me, peer, 0, 0, 512);
    expect_chunk(*mailbox, source, me, 0, 0, 512);
    send(*mailbox, me, peer, 0, 1, 512);  // next to it, not over it
    expect_chunk(*mailbox, source, me, 0, 1, 512);
    barrier(comm);
    for (std::size_t i = 0; i < 512; ++i)
      ASSERT_EQ(posted[i], std::byte{pattern(me, peer, 0, 0, i)}) << i;
  });
}

TEST_P(MailboxConformance, BringsAnswersBackInTheirChunks) {
  run([&](Communicator& comm) {
    const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = 64});
    Mailbox::State& answering = mailbox->state();
    // Ranks that see each other's calls share memory, unless they communicate over a link.
    ASSERT_EQ(answering.takes_answers(),
              GetParam().maker.sees_calls && GetParam().maker.link.empty());
    if (!answering.takes_answers()) {
      EXPECT_THROW(answering.answer(0, 0), Error);
      EXPECT_THROW(answering.answer_box(0, 0), Error);
      return;
    }
    const int next = (comm.rank() + 1) % world();
    const int before = (comm.rank() + world() - 1) % world();
    for (std::uint32_t number = 0; number < 3; ++number) {  // both buffers, and one of them again
      *mailbox->outbox(next, 0) = std::byte(comm.rank());
      mailbox->post(next, 0, {.chunk = number}, 1);
      mailbox->wait_arrived(before, 0, {.chunk = number});
      barrier(comm);
      EXPECT_EQ(answering.answer(next, 0), nullptr) << "nobody has released it";
      barrier(comm);
      *answering.answer_box(before, 0) = *mailbox->inbox(before, 0) | std::byte{0x80};
      mailbox->release(before, 0);
      barrier(comm);
      const std::byte* answer = answering.answer(next, 0);
      ASSERT_NE(answer, nullptr);
      EXPECT_EQ(*answer, std::byte(comm.rank() | 0x80));
    }
  });
}

TEST_P(MailboxConformance, PoisonLeavesNoAnswers) {
  run([&](Communicator& comm) {
    const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = 64, .poison = true});
    EXPECT_FALSE(mailbox->state().takes_answers());
  });
}

TEST_P(MailboxConformance, HoldsTwoChunksOfAChannelAndNoMore) {
  run([&](Communicator& comm) {
    const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = 64});
    const int next = (comm.rank() + 1) % world();
    const int previous = (comm.rank() + world() - 1) % world();
    for (std::uint32_t number = 1; number <= 2; ++number) {
      EXPECT_TRUE(mailbox->vacant(next, 0));
      send(*mailbox, comm.rank(), next, 0, number, 64);
    }
    // No buffer of the peer may be released before all ranks have checked here.
    mailbox->wait_arrived(previous, 0, {.chunk = 1});
    barrier(comm);
    EXPECT_FALSE(mailbox->vacant(next, 0));
    barrier(comm);
    for (std::uint32_t number = 1; number <= 2; ++number)
      expect_chunk(*mailbox, previous, comm.rank(), 0, number, 64);
    // waits for a free buffer if the peer is slow
    send(*mailbox, comm.rank(), next, 0, 3, 64);
    expect_chunk(*mailbox, previous, comm.rank(), 0, 3, 64);
  });
}

// A rank that reads a released chunk must notice it.
TEST_P(MailboxConformance, PoisonsWhatIsReleased) {
  run([&](Communicator& comm) {
    constexpr std::size_t kBytes = 200;
    const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = kBytes, .poison = true});
    const int next = (comm.rank() + 1) % world();
    const int previous = (comm.rank() + world() - 1) % world();
    for (std::uint32_t number = 0; number < 2; ++number) {  // both buffers
      send(*mailbox, comm.rank(), next, 0, number, kBytes);
      mailbox->wait_arrived(previous, 0, {.chunk = number});
      const std::byte* chunk = mailbox->inbox(previous, 0);
      EXPECT_NE(chunk[1], chunk[2]);
      mailbox->release(previous, 0);
      EXPECT_TRUE(
          std::all_of(chunk, chunk + kBytes, [](std::byte b) { return b == std::byte{0xA5}; }));
    }
    barrier(comm);
  });
}

// A release must wake a sender that sleeps while it waits for a buffer. Otherwise the sender would
// wake only to examine its peers, which happens here after its whole patience.
TEST_P(MailboxConformance, ReleaseWakesASleepingSender) {
  if (world() == 1 || !GetParam().maker.sees_calls) return;
  if (GetParam().maker.one_thread) return;  // no rank sleeps
  run([&](Communicator& comm) {
    const auto mailbox = comm.make_mailbox({.slots = 3, .slot_bytes = 64});
    constexpr int kFull = 0;
    constexpr int kAsleep = 1;
    constexpr int kGoOn = 2;
    barrier(comm);
    if (comm.rank() == 0) {
      send(*mailbox, 0, 1, kFull, 1, 64);
      send(*mailbox, 0, 1, kFull, 2, 64);
      const comm::Nanoseconds until = base::now() + 20 * base::kSecond;
      bool said = false;
      while (!mailbox->vacant(1, kFull) && base::now() < until) {
        // The condition is checked after the rank counts as asleep, so a release that comes now
        // must wake it. The first release is that of the chunk sent here; the other one may come
        // before the next sleep.
        mailbox->state().group().sleep_until(until, [&] {
          if (said) return mailbox->vacant(1, kFull);
          send(*mailbox, 0, 1, kAsleep, 1, 0);
          said = true;
          return false;
        });
      }
      EXPECT_LT(base::now(), until) << "the release woke nobody";
      for (int peer = 1; peer < world(); ++peer) send(*mailbox, 0, peer, kGoOn, 1, 0);
    } else {
      if (comm.rank() == 1) {
        expect_chunk(*mailbox, 0, 1, kAsleep, 1, 0);
        expect_chunk(*mailbox, 0, 1, kFull, 1, 64);
      }
      // Rank 0 is not woken for any other reason.
      expect_chunk(*mailbox, 0, comm.rank(), kGoOn, 1, 0);
    }
    barrier(comm);
  });
}

TEST_P(MailboxConformance, AlignsOutboxes) {
  run([&](Communicator& comm) {
    const auto mailbox = comm.make_mailbox({.slots = 2, .slot_bytes = 100});
    for (int slot = 0; slot < 2; ++slot) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mailbox->outbox(0, slot)) % 64, 0U);
    }
    barrier(comm);
  });
}

TEST_P(MailboxConformance, ArrivesInOrderUnderRandomDelays) {
  run([&](Communicator& comm) {
    const auto mailbox = comm.make_mailbox({.slots = 2, .slot_bytes = 256, .poison = true});
    std::minstd_rand random(static_cast<unsigned>(comm.rank()) + 1);
    const auto loiter = [&] {
      if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    };
    constexpr std::uint32_t kRounds = 60;
    for (std::uint32_t number = 0; number < kRounds; ++number) {
      for (int peer = 0; peer < world(); ++peer) {
        loiter();
        send(*mailbox, comm.rank(), peer, static_cast<int>(number % 2), number, 1 + number);
      }
      for (int step = 0; step < world(); ++step) {
        const int peer = (comm.rank() + step) % world();
        loiter();
        expect_chunk(*mailbox, peer, comm.rank(), static_cast<int>(number % 2), number, 1 + number);
      }
    }
  });
}

TEST_P(MailboxConformance, KeepsSeveralMailboxesApart) {
  run([&](Communicator& comm) {
    const auto one = comm.make_mailbox({.slots = 1, .slot_bytes = 64});
    const auto two = comm.make_mailbox({.slots = 1, .slot_bytes = 128});
    const int next = (comm.rank() + 1) % world();
    const int previous = (comm.rank() + world() - 1) % world();
    send(*two, comm.rank(), next, 0, 2, 128);
    send(*one, comm.rank(), next, 0, 1, 64);
    expect_chunk(*one, previous, comm.rank(), 0, 1, 64);
    expect_chunk(*two, previous, comm.rank(), 0, 2, 128);
    EXPECT_GE(comm.mailbox_bytes(), 2U * (64 + 128) * static_cast<unsigned>(world()));
  });
}

// The header allows it: one mailbox for each thread, and different slots of a third.
TEST_P(MailboxConformance, ServesTwoThreadsOfARankAtOnce) {
  if (GetParam().maker.one_thread) return;
  run([&](Communicator& comm) {
    const auto one = comm.make_mailbox({.slots = 1, .slot_bytes = 64, .poison = true});
    const auto two = comm.make_mailbox({.slots = 1, .slot_bytes = 64, .poison = true});
    const auto both = comm.make_mailbox({.slots = 2, .slot_bytes = 64, .poison = true});
    const auto talk = [&](Mailbox& own, int slot) {
      try {
        for (std::uint32_t number = 0; number < 40; ++number) {
          if (number % 8 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(comm.rank()));
          for (int peer = 0; peer < world(); ++peer) {
            send(own, comm.rank(), peer, 0, number, 64);
            send(*both, comm.rank(), peer, slot, number, number);
          }
          for (int peer = world() - 1; peer >= 0; --peer) {
            expect_chunk(own, peer, comm.rank(), 0, number, 64);
            expect_chunk(*both, peer, comm.rank(), slot, number, number);
          }
        }
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    };
    std::thread other([&] { talk(*one, 0); });
    talk(*two, 1);
    other.join();
    barrier(comm);
  });
}

// The chunk is still on its link when its sender leaves, and for a while after. The sender has done
// its part, so the chunk must arrive.
TEST_P(MailboxConformance, BringsWhatALeavingRankHasPosted) {
  if (world() == 1 || GetParam().maker.one_thread) return;
  CommunicatorOptions options;
  if (GetParam().maker.one_host) options.link = parse_link("150ms");
  GetParam().maker.run(
      world(),
      [&](Communicator& comm) {
        auto part = comm.split(0, comm.rank());
        auto mailbox = part->make_mailbox({.slots = 2, .slot_bytes = 100});
        if (comm.rank() == 0) {
          for (int peer = 1; peer < world(); ++peer) {
            send(*mailbox, 0, peer, 0, 1, 100);
            send(*mailbox, 0, peer, 1, 2, 50);
          }
          mailbox.reset();
          part.reset();
          barrier(comm);
        } else {
          // One rank reads while the chunk is still under way, another long after.
          if (comm.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(250));
          expect_chunk(*mailbox, 0, comm.rank(), 0, 1, 100);
          expect_chunk(*mailbox, 0, comm.rank(), 1, 2, 50);
          barrier(comm);  // the first failure ends the group for all
          // A chunk that the rank has not posted will never arrive, which is reported at once.
          const Error error =
              expect_error(Code::peer_lost, [&] { mailbox->wait_arrived(0, 0, {.chunk = 3}); });
          EXPECT_EQ(error.culprit(), 0) << error.what();
          EXPECT_TRUE(contains(error.what(), "rank 0")) << error.what();
          EXPECT_TRUE(contains(error.what(), "has left the group")) << error.what();
        }
        barrier(comm);
      },
      options);
}

TEST_P(MailboxConformance, CachesByDescription) {
  run([&](Communicator& comm) {
    Mailbox& first = comm.cached_mailbox({.slots = 2, .slot_bytes = 64});
    const std::size_t bytes = comm.mailbox_bytes();
    EXPECT_EQ(&comm.cached_mailbox({.slots = 2, .slot_bytes = 64}), &first);
    EXPECT_NE(&comm.cached_mailbox({.slots = 2, .slot_bytes = 65}), &first);
    EXPECT_GT(comm.mailbox_bytes(), bytes);
    {
      const auto passing = comm.make_mailbox({.slots = 9, .slot_bytes = 4096});
    }
    EXPECT_LT(comm.mailbox_bytes(), bytes + 9 * 4096);
    barrier(comm);
  });
}

TEST_P(MailboxConformance, RefusesAChunkOfAnotherCall) {
  run([&](Communicator& comm) {
    const int next = (comm.rank() + 1) % world();
    const int previous = (comm.rank() + world() - 1) % world();
    // A slow rank gets the error while it is still making the mailbox.
    const Error error = expect_error(Code::mismatch, [&] {
      const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = 64});
      mailbox->outbox(next, 0);
      mailbox->post(next, 0, {.operation = Operation::all_gather, .sizes = {100, 0, 0}}, 0);
      mailbox->wait_arrived(previous, 0,
                            {.operation = Operation::all_gather, .sizes = {120, 0, 0}});
    });
    EXPECT_TRUE(contains(error.what(), "elements: 120 and 100")) << error.what();
    EXPECT_TRUE(contains(error.what(), "all_gather")) << error.what();
  });
}

TEST_P(MailboxConformance, RefusesWhatDoesNotFit) {
  run([&](Communicator& comm) {
    const auto mailbox = comm.make_mailbox({.slots = 2, .slot_bytes = 64});
    const auto refusal = [&](const auto& call) {
      return std::string(expect_error(Code::invalid_argument, call).what());
    };
    EXPECT_EQ(refusal([&] { mailbox->outbox(0, 2); }),
              "outbox: slot 2 is not one of the mailbox's 2");
    EXPECT_EQ(refusal([&] { mailbox->arrived(0, -1, {}); }),
              "arrived: slot -1 is not one of the mailbox's 2");
    EXPECT_EQ(refusal([&] { mailbox->post(world(), 0, {}, 1); }),
              "post: there is no rank " + std::to_string(world()) + " in a world of " +
                  std::to_string(world()));
    EXPECT_EQ(refusal([&] { mailbox->post(0, 1, {}, 65); }),
              "post: a chunk of 65 bytes does not fit slot 1 of 64");
    EXPECT_EQ(refusal([&] { mailbox->release(0, 0); }),
              "release: the chunk in slot 0 from rank 0 has not arrived");
    EXPECT_EQ(refusal([&] { mailbox->inbox(0, 0); }),
              "inbox: the chunk in slot 0 from rank 0 has not arrived");
    EXPECT_EQ(refusal([&] { mailbox->inbox_bytes(0, 1); }),
              "inbox_bytes: the chunk in slot 1 from rank 0 has not arrived");
    refusal([&] { comm.make_mailbox({.slots = 0, .slot_bytes = 64}); });
    EXPECT_EQ(refusal([&] {
                comm.make_mailbox({.slots = 1, .slot_bytes = 64, .device = Device::cuda(1)});
              }),
              "make_mailbox: slots on cuda:1, whose memory this build cannot reach");
    refusal([&] { comm.make_mailbox({.slots = 1, .slot_bytes = SIZE_MAX}); });
    refusal([&] { comm.make_mailbox({.slots = 1 << 24, .slot_bytes = std::size_t{1} << 40}); });
    refusal([&] { comm.make_mailbox({.slots = 4000000, .slot_bytes = 0}); });
    barrier(comm);  // nothing was sent, and the group still works
  });
}

TEST_P(MailboxConformance, NoticesDifferentMailboxes) {
  if (world() == 1) return;
  run([&](Communicator& comm) {
    const Error error = expect_error(Code::mismatch, [&] {
      comm.make_mailbox({.slots = comm.rank() == 0 ? 2 : 3, .slot_bytes = 64});
    });
    const std::string sentence = error.what();
    EXPECT_TRUE(contains(sentence, "slots: 2 and 3") || contains(sentence, "slots: 3 and 2") ||
                (contains(sentence, "2 slots") && contains(sentence, "3 slots")))
        << sentence;
  });
}

}  // namespace plait::conformance
