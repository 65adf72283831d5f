// Shared memory and announced calls of ranks, on memory as weak as C++ lets it be (weak_memory.h).
// Most tests also show that the search finds a fault if the memory leaves out an order.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <memory>

// All that the files below include, before the words below get other meanings.
#include "base/check.h"
#include "base/clock.h"
#include "base/futex.h"
#include "base/region.h"
#include "base/round_up.h"
#include "base/text.h"
#include "comm/weak_memory.h"
#include "plait/mailbox.h"
#include "plait/trace.h"

namespace std {
template <class T>
using modelled_atomic = plait::weak::Atomic<T>;
}

namespace plait::base {

constexpr Nanoseconds kVeryLong = 1000 * kSecond;
static bool is_fence_offered = true;

static bool modelled_fence() {
  if (is_fence_offered) weak::heavy_fence();
  return is_fence_offered;
}

static void futex_wait(const weak::Atomic<std::uint32_t>& word, std::uint32_t seen,
                       Nanoseconds longest) {
  if (longest == kVeryLong) return weak::sleep_on(&word, seen);
  weak::nap();
}

static void futex_wake_all(const weak::Atomic<std::uint32_t>& word) { weak::wake_all(&word); }

}  // namespace plait::base

// The library's own files, with other atomics and the model's fence, and under another name, as the
// library is linked too.
#define atomic modelled_atomic
#define heavy_fence modelled_fence
#define comm modelled_comm
// clang-format off
// NOLINTBEGIN(bugprone-suspicious-include)
#include "comm/core/whereabouts.cc"
#include "comm/mapped/rank_page.cc"
#include "comm/mapped/mapped_channels.cc"
#include "comm/mapped/sleep_sign.h"
// NOLINTEND(bugprone-suspicious-include)
// clang-format on
#undef comm
#undef heavy_fence
#undef atomic

namespace plait::modelled_comm {
namespace {

using weak::Atomic;
using weak::Outcome;
using weak::Threads;
using weak::Without;

constexpr auto kRelease = std::memory_order_release;
constexpr auto kAcquire = std::memory_order_acquire;

void expect_no_fault(const Outcome& outcome) {
  EXPECT_EQ(outcome.fault, "");
  EXPECT_GT(outcome.runs, 50);
}

void expect_unordered_accesses(const Outcome& outcome) {
  EXPECT_NE(outcome.fault.find(" does not come after "), std::string::npos) << outcome.fault;
}

// Shared memory begins as zeros.
template <class Part>
struct Zeroed {
  alignas(Part) std::array<std::byte, sizeof(Part)> bytes = {};
  Part* operator->() { return reinterpret_cast<Part*>(bytes.data()); }
  Part& operator*() { return *reinterpret_cast<Part*>(bytes.data()); }
};

// Rank 0 posts three chunks to rank 1, so that the third takes the place of the first.
struct TwoRanks {
  static constexpr MailboxDesc kDesc = {.slots = 1, .slot_bytes = kLine};
  static constexpr int kChunks = 3;

  std::vector<base::Region> regions;
  MappedChannels source;
  MappedChannels reader;

  TwoRanks() : regions(2, base::Region()), source(kDesc, 0, mapped()), reader(kDesc, 1, regions) {}

  const std::vector<base::Region>& mapped() {
    for (base::Region& region : regions)
      region = base::Region::allocate(MappedChannels::bytes_for(kDesc, 2));
    return regions;
  }

  void post_all() {
    for (std::uint32_t chunk = 1; chunk <= kChunks; ++chunk) {
      if (!weak::await([&] { return source.has_room(1, 0); })) return;
      std::byte* place = source.outbox(1, 0);
      weak::write(place);
      std::memcpy(place, &chunk, sizeof(chunk));
      source.post(1, 0, Tag{.chunk = chunk}, sizeof(chunk));
    }
  }

  void read_all(bool answers) {
    for (std::uint32_t chunk = 1; chunk <= kChunks; ++chunk) {
      Arrival in;
      if (!weak::await([&] { return (in = reader.arrival(0, 0)).data != nullptr; })) return;
      weak::read(in.data);
      std::uint32_t found = 0;
      std::memcpy(&found, in.data, sizeof(found));
      weak::expect(found == chunk && in.tag->chunk == chunk, "a chunk is not the one that came");
      if (answers) weak::write(in.data);
      weak::expect(reader.release(0, 0), "a chunk that has come can't be given back");
    }
  }
};

Outcome chunks(Without without) {
  return weak::search(
      [] {
        auto ranks = std::make_shared<TwoRanks>();
        return Threads{[ranks] { ranks->post_all(); }, [ranks] { ranks->read_all(false); }};
      },
      without);
}

TEST(MappedOrder, AChunkIsReadAsItWasPosted) {
  expect_no_fault(chunks(Without::nothing));
  expect_unordered_accesses(chunks(Without::release));
  expect_unordered_accesses(chunks(Without::acquire));
}

// The source reads what the reader has left in the place of its last chunk.
Outcome answers(Without without) {
  return weak::search(
      [] {
        auto ranks = std::make_shared<TwoRanks>();
        const auto source = [ranks] {
          ranks->post_all();
          const std::byte* answer = nullptr;
          if (weak::await([&] { return (answer = ranks->source.answer(1, 0)) != nullptr; }))
            weak::read(answer);
        };
        return Threads{source, [ranks] { ranks->read_all(true); }};
      },
      without);
}

TEST(MappedOrder, AnAnswerIsReadAsItWasLeft) {
  expect_no_fault(answers(Without::nothing));
  expect_unordered_accesses(answers(Without::release));
}

struct Sleep {
  Zeroed<Doorbell> doorbell;
  Atomic<std::uint32_t> flag{0};
};

// A rank that sleeps at its doorbell, and two that post to it, or one that posts twice.
Outcome doorbell(Without without, bool fence = true) {
  base::is_fence_offered = fence;
  return weak::search(
      [] {
        auto sleep = std::make_shared<Sleep>();
        const auto poster = [sleep] {
          sleep->flag.fetch_add(1, kRelease);
          sleep->doorbell->ring();
        };
        const auto sleeper = [sleep] {
          std::uint32_t seen = 0;
          const auto ready = [&] { return (seen = sleep->flag.load(kAcquire)) == 2; };
          while (!ready()) sleep->doorbell->sleep(base::kVeryLong, ready);
        };
        return Threads{sleeper, poster, poster};
      },
      without);
}

TEST(MappedOrder, NoPostIsSleptThrough) {
  expect_no_fault(doorbell(Without::nothing));
  EXPECT_EQ(doorbell(Without::heavy_fence).fault, "a thread waits for ever");
}

// A rank naps if the kernel has no such fence.
TEST(MappedOrder, APostMissedWithoutAFenceIsFoundAfterANap) {
  expect_no_fault(doorbell(Without::nothing, /*fence=*/false));
}

// Two near ranks that post to one that sleeps at its connections. The kernel orders frames, and
// another thread of the sleeper's rank takes each as soon as it comes.
struct SleepAtConnections {
  Zeroed<SleepSign> sign;
  std::array<Atomic<std::uint32_t>, 2> flags;
  Atomic<std::uint32_t> frames{0};

  void post(int poster) {
    flags[poster].store(1, kRelease);
    if (!sign->must_wake()) return;
    frames.fetch_add(1, std::memory_order_acq_rel);
    weak::wake_all(&frames);
  }

  bool have_posted() { return flags[0].load(kAcquire) == 1 && flags[1].load(kAcquire) == 1; }

  std::uint32_t news() { return frames.fetch_add(0, std::memory_order_acq_rel); }

  void sleep(bool news_first) {
    SleepSign::Sleeper sleeper(*sign);
    for (;;) {
      std::uint32_t seen = news();
      const base::Nanoseconds nap = sleeper.prepare(base::kVeryLong);
      if (!news_first) seen = news();
      if (have_posted()) return;
      base::futex_wait(frames, seen, nap);
    }
  }
};

Outcome sleep_sign(Without without, bool news_first = true) {
  base::is_fence_offered = true;
  return weak::search(
      [=] {
        auto all = std::make_shared<SleepAtConnections>();
        return Threads{[=] { all->sleep(news_first); }, [=] { all->post(0); },
                       [=] { all->post(1); }};
      },
      without);
}

TEST(MappedOrder, OneOfSeveralPostersWakesARankAtItsConnections) {
  expect_no_fault(sleep_sign(Without::nothing));
  EXPECT_EQ(sleep_sign(Without::heavy_fence).fault, "a thread waits for ever");
  // The frame that a second poster relies on must be news to the sleeper.
  EXPECT_EQ(sleep_sign(Without::nothing, /*news_first=*/false).fault, "a thread waits for ever");
}

Tag tag_of(std::uint32_t call) {
  return {.call = call, .chunk = call, .plan = call, .sizes = {call, call, call}};
}

bool belongs_together(const Tag& tag) { return tag == tag_of(tag.call); }

Outcome announced_call(Without without) {
  return weak::search(
      [] {
        auto call = std::make_shared<Zeroed<AnnouncedCall>>();
        const auto writer = [call] {
          (*call)->write(tag_of(1));
          (*call)->write(tag_of(2));
        };
        const auto reader = [call] {
          Tag tag;
          weak::expect(!(*call)->read(tag) || belongs_together(tag), "words of two calls");
        };
        return Threads{writer, reader};
      },
      without);
}

TEST(MappedOrder, WordsOfAnAnnouncedCallBelongTogether) {
  expect_no_fault(announced_call(Without::nothing));
  EXPECT_EQ(announced_call(Without::release).fault, "words of two calls");
  EXPECT_EQ(announced_call(Without::acquire).fault, "words of two calls");
}

TEST(MappedOrder, OfTwoRanksThatSettleOneReadsTheOthersCall) {
  expect_no_fault(weak::search([] {
    struct Calls {
      std::array<Zeroed<AnnouncedCall>, 2> of;
      Atomic<std::uint32_t> missed{0};
    };
    auto calls = std::make_shared<Calls>();
    const auto rank = [calls](int me) {
      return [calls, me] {
        calls->of[me]->write(tag_of(1));
        calls->of[me]->settle();
        Tag tag;
        if (calls->of[1 - me]->read(tag)) return;
        weak::expect(calls->missed.fetch_add(1, std::memory_order_relaxed) == 0,
                     "neither has read the other's");
      };
    };
    return Threads{rank(0), rank(1)};
  }));
}

}  // namespace
}  // namespace plait::modelled_comm
