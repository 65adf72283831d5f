// Collectives of several communicators under way at once: a rank that waits in one of them advances
// the others, so ranks may wait in any order.
#include <array>
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "conformance/collectives.h"
#include "plait/collectives.h"

namespace plait::conformance {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SeveralGroupsConformance);

namespace {

// More than the slots of a lane hold, so that nothing is done as soon as it is started.
constexpr std::size_t kCount = 400'000;

// A sum of ones, and its result.
class Sum {
 public:
  explicit Sum(Communicator& comm)
      : world_(static_cast<float>(comm.world())),
        data_(kCount, 1.0F),
        pending_(start_all_reduce({data_.data(), kCount}, {data_.data(), kCount}, comm)) {}

  Pending& pending() { return pending_; }
  void wait() {
    pending_.wait();
    EXPECT_EQ(data_, std::vector<float>(kCount, world_));
  }

 private:
  float world_;
  std::vector<float> data_;
  Pending pending_;
};

// All ranks make both calls; the first half of them in this order, the others in the opposite one.
void in_opposite_orders(const Communicator& comm, const std::function<void()>& one,
                        const std::function<void()>& other) {
  const bool is_first_half = 2 * comm.rank() < comm.world();
  is_first_half ? one() : other();
  is_first_half ? other() : one();
}

}  // namespace

TEST_P(SeveralGroupsConformance, RanksWaitInOppositeOrders) {
  run([](Communicator& comm) {
    std::optional<Communicator> part = comm.split(0, comm.rank());
    for (int round = 0; round < 3; ++round) {
      Sum first(comm);
      Sum second(*part);
      Sum third(comm);
      in_opposite_orders(comm, [&] { first.wait(); }, [&] { second.wait(); });
      third.wait();
    }
  });
}

TEST_P(SeveralGroupsConformance, ARankPollsOneAndThenTheOther) {
  if (GetParam().maker.one_thread) return;  // a rank that polls gives no other its turn
  run([](Communicator& comm) {
    std::optional<Communicator> part = comm.split(0, comm.rank());
    Sum first(comm);
    Sum second(*part);
    const auto poll = [](Sum& sum) {
      while (!sum.pending().done()) std::this_thread::yield();
      sum.wait();
    };
    in_opposite_orders(comm, [&] { poll(first); }, [&] { poll(second); });
  });
}

// Blocking calls of another communicator between the start of a sum and its wait.
TEST_P(SeveralGroupsConformance, OtherCallsComeBetween) {
  run([](Communicator& comm) {
    std::optional<Communicator> part = comm.split(0, comm.rank());
    std::optional<Communicator> another;
    std::unique_ptr<Mailbox> mailbox;
    std::vector<float> more(kCount, 1.0F);
    const std::array<std::function<void()>, 5> calls = {
        [&] { barrier(*part); }, [&] { all_reduce({more.data(), kCount}, *part); },
        [&] { mailbox = part->make_mailbox({.slots = 1, .slot_bytes = 8}); },
        [&] { another = part->split(0, part->rank()); },
        [&] {
          const int next = (comm.rank() + 1) % comm.world();
          const int last = (comm.rank() + comm.world() - 1) % comm.world();
          mailbox->post(next, 0, {}, 8);
          mailbox->wait_arrived(last, 0, {});
          mailbox->release(last, 0);
        }};
    for (const auto& call : calls) {
      Sum sum(comm);
      in_opposite_orders(comm, call, [&] { sum.wait(); });
    }
  });
}

// Each of three communicators is waited for first on some ranks.
TEST_P(SeveralGroupsConformance, ThreeGroupsInAllOrders) {
  run([](Communicator& comm) {
    std::array<std::optional<Communicator>, 2> parts = {comm.split(0, comm.rank()),
                                                        comm.split(0, comm.rank())};
    std::array<Communicator*, 3> groups = {&comm, &*parts[0], &*parts[1]};
    std::vector<std::unique_ptr<Sum>> sums;
    for (Communicator* group : groups) sums.push_back(std::make_unique<Sum>(*group));
    for (std::size_t i = 0; i < sums.size(); ++i)
      sums[(i + static_cast<std::size_t>(comm.rank())) % sums.size()]->wait();
  });
}

// Two ranks wait for each other, one of them in the set-up of a group. The sentence of a deadline
// names both waits.
TEST_P(SeveralGroupsConformance, ADeadlineInOneNamesAWaitInTheSetUpOfAnother) {
  if (world() != 2 || GetParam().maker.one_thread) return;
  for (const bool is_late_in_set_up : {false, true}) {
    run([&](Communicator& comm) {
      std::optional<Communicator> part = comm.split(0, comm.rank());
      const auto split = [&] { comm.split(0, comm.rank()); };
      const auto meet = [&] { barrier(*part); };
      if (comm.rank() == 1) return is_late_in_set_up ? split() : meet();
      set_timeout(is_late_in_set_up ? *part : comm, std::chrono::seconds(2));
      const Error error =
          expect_error(Code::timeout, [&] { is_late_in_set_up ? meet() : split(); });
      const std::string call = is_late_in_set_up ? "split" : "barrier";
      EXPECT_TRUE(contains(error.what(),
                           "; rank 1 waits in another communicator, in " + call + ", for rank 0"))
          << error.what();
      is_late_in_set_up ? split() : meet();
    });
  }
}

// The failure of a communicator is found while its rank waits in another one, whose wait goes on.
TEST_P(SeveralGroupsConformance, AFailureStaysWithItsOwn) {
  if (world() == 1 || GetParam().maker.one_thread) return;  // a failure ends a simulation
  run([](Communicator& comm) {
    std::optional<Communicator> part = comm.split(0, comm.rank());
    barrier(comm);
    if (comm.rank() == 1) {
      part->abort("on purpose");
      barrier(comm);
      return;
    }
    std::vector<float> data(kCount);
    try {
      Pending pending = start_all_reduce({data.data(), kCount}, {data.data(), kCount}, *part);
      barrier(comm);
      expect_error(Code::peer_lost, [&] { pending.wait(); });
    } catch (const Error& error) {
      // This is so if the abort came before the sum was started.
      EXPECT_TRUE(contains(error.what(), "on purpose")) << error.what();
      barrier(comm);
    }
  });
}

}  // namespace plait::conformance
