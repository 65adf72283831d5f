// The model of memory that mapped_order_test.cc relies on does what C++ says, and no less.
#include "comm/weak_memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <utility>

namespace plait::weak {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

struct Two {
  Atomic<int> x{0};
  Atomic<int> y{0};
};

using Seen = std::set<std::pair<int, int>>;

TEST(WeakMemory, ReordersAStoreAndALaterLoadUnlessThereIsAFence) {
  const auto results = [](auto between, std::memory_order order) {
    Seen seen;
    const Outcome outcome = search([&] {
      auto two = std::make_shared<Two>();
      auto found = std::make_shared<std::pair<int, int>>();
      auto done = std::make_shared<int>();
      const auto note = [&seen, found, done] {
        if (++*done == 2) seen.insert(*found);
      };
      return Threads{[=] {
                       two->x.store(1, order);
                       between();
                       found->first = two->y.load(order);
                       note();
                     },
                     [=] {
                       two->y.store(1, order);
                       found->second = two->x.load(order);
                       note();
                     }};
    });
    EXPECT_EQ(outcome.fault, "");
    return seen;
  };
  const auto nothing = [] {};
  const Seen all = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
  const Seen ordered = {{0, 1}, {1, 0}, {1, 1}};
  EXPECT_EQ(results(nothing, kRelaxed), all);
  EXPECT_EQ(results(nothing, std::memory_order_seq_cst), ordered);
  EXPECT_EQ(results(heavy_fence, kRelaxed), ordered);
}

// Data, then a flag: is the data there when the flag is?
Outcome message(std::memory_order store, std::memory_order load) {
  return search([=] {
    auto two = std::make_shared<Two>();
    return Threads{[=] {
                     two->x.store(1, kRelaxed);
                     two->y.store(1, store);
                   },
                   [=] {
                     if (two->y.load(load) == 1)
                       expect(two->x.load(kRelaxed) == 1, "the flag came first");
                   }};
  });
}

TEST(WeakMemory, OrdersAMessageByReleaseAndAcquireAlone) {
  EXPECT_EQ(message(std::memory_order_release, std::memory_order_acquire).fault, "");
  EXPECT_EQ(message(kRelaxed, std::memory_order_acquire).fault, "the flag came first");
  EXPECT_EQ(message(std::memory_order_release, kRelaxed).fault, "the flag came first");
}

TEST(WeakMemory, NeverReadsAnOlderValueAfterANewerOne) {
  const Outcome outcome = search([] {
    auto two = std::make_shared<Two>();
    return Threads{[=] {
                     two->x.store(1, kRelaxed);
                     two->x.store(2, kRelaxed);
                   },
                   [=] {
                     const int first = two->x.load(kRelaxed);
                     expect(first <= two->x.load(kRelaxed), "an older value");
                   }};
  });
  EXPECT_EQ(outcome.fault, "");
}

// A flag that was stored with release still carries what it carried when an exchange has counted it
// up, but not when a store has replaced it.
Outcome counted_up(bool by_exchange) {
  return search([=] {
    auto two = std::make_shared<Two>();
    return Threads{[=] {
                     write(&two->x);
                     two->y.store(1, std::memory_order_release);
                   },
                   [=] {
                     if (by_exchange) {
                       two->y.fetch_add(1, kRelaxed);
                     } else {
                       two->y.store(2, kRelaxed);
                     }
                   },
                   [=] {
                     if (two->y.load(std::memory_order_acquire) == 2) read(&two->x);
                   }};
  });
}

TEST(WeakMemory, CarriesOnAReleaseThroughAnExchangeOnly) {
  EXPECT_EQ(counted_up(true).fault, "");
  EXPECT_EQ(counted_up(false).fault, "an access does not come after a write");
}

TEST(WeakMemory, FindsAWaitThatNoThreadEnds) {
  const Outcome outcome = search([] {
    auto two = std::make_shared<Two>();
    return Threads{[=] { await([&] { return two->x.load(kRelaxed) == 2; }); },
                   [=] { two->x.store(1, kRelaxed); }};
  });
  EXPECT_EQ(outcome.fault, "a thread waits for ever");
}

}  // namespace
}  // namespace plait::weak
