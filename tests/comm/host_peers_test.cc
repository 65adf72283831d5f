// Processes that share memory, and how one that sleeps is woken by what another has written there.
// They are threads here, each with a mesh of its own.
#include "comm/control/host_peers.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/control/tcp_group.h"

namespace plait::comm::tcp {
namespace {

// A sleeper that is not woken would make these tests run into their deadline.
constexpr base::Nanoseconds kVeryLong = 1000 * base::kSecond;

class Table {
 public:
  explicit Table(int processes) : texts_(processes), barrier_(processes) {}

  std::vector<std::string> gather(int process, const std::string& text) {
    texts_[process] = text;
    barrier_.arrive_and_wait();
    auto all = texts_;
    barrier_.arrive_and_wait();
    return all;
  }

 private:
  std::vector<std::string> texts_;
  std::barrier<> barrier_;
};

// The text that process `process` sends in place of `text`.
using Tamper = std::function<std::string(int process, const std::string& text)>;

void meet(
    const std::vector<HostPeers*>& all, const std::vector<std::string>& hosts,
    const Tamper& tamper = [](int, const std::string& text) { return text; }) {
  Table table(static_cast<int>(all.size()));
  std::vector<std::jthread> threads;
  threads.reserve(all.size());
  for (int process = 0; process < static_cast<int>(all.size()); ++process) {
    threads.emplace_back([&, process] {
      all[process]->meet(hosts[process], [&](const std::string& mine) {
        return table.gather(process, tamper(process, mine));
      });
    });
  }
}

std::vector<std::unique_ptr<HostPeers>> make_near(int processes) {
  std::vector<std::unique_ptr<HostPeers>> all;
  all.reserve(processes);
  for (int process = 0; process < processes; ++process)
    all.push_back(std::make_unique<HostPeers>(process, processes));
  return all;
}

std::vector<HostPeers*> pointers_to(const std::vector<std::unique_ptr<HostPeers>>& all) {
  std::vector<HostPeers*> pointers;
  pointers.reserve(all.size());
  for (const auto& one : all) pointers.push_back(one.get());
  return pointers;
}

TEST(HostPeers, ProcessesOfOneHostAreNearEachOther) {
  const auto all = make_near(4);
  meet(pointers_to(all), {"a", "b", "a", "c"});
  for (int process = 0; process < 4; ++process) {
    for (int other = 0; other < 4; ++other)
      EXPECT_EQ(all[process]->has(other), process == other || process + other == 2) << process;
    EXPECT_EQ(all[process]->is_alone(), process % 2 == 1);
    EXPECT_TRUE(all[process]->has_two_of({2, 1, 0}));
    EXPECT_FALSE(all[process]->has_two_of({0, 1, 3}));
  }
  EXPECT_EQ(all[0]->why_far(2), "");
  EXPECT_EQ(all[0]->why_far(1), "its PLAIT_HOST is another");
}

TEST(HostPeers, NoneAreNearWhereAllAreOnOneHost) {
  const auto all = make_near(3);
  meet(pointers_to(all), {"a", "a", "a"});
  for (const auto& one : all) {
    EXPECT_TRUE(one->is_alone());
    EXPECT_FALSE(one->has_two_of({0, 1, 2}));
    EXPECT_EQ(all[1]->why_far(0),
              "all ranks are on one host, where TCP or UCX is only used if asked for");
  }
}

// Descriptor 0 is there, and another file.
TEST(HostPeers, AHostWhoseMemoryCannotBeMappedIsLeftToTcp) {
  const auto all = make_near(5);
  meet(pointers_to(all), {"a", "b", "a", "a", "b"}, [](int process, const std::string& text) {
    return process == 2 && text.find(':') != std::string::npos
               ? text.substr(0, text.rfind(' ')) + " 0:1:1"
               : text;
  });
  for (const int process : {0, 2, 3}) {
    EXPECT_TRUE(all[process]->is_alone()) << process;
    EXPECT_FALSE(all[process]->has_two_of({0, 2, 3}));
  }
  EXPECT_EQ(all[0]->why_far(3), "a rank of this host cannot map another one's memory");
  EXPECT_TRUE(all[1]->has(4));
  EXPECT_TRUE(all[0]->has_two_of({1, 4})) << "known to all";
}

TEST(HostPeers, MapsWhatAnotherLends) {
  const auto all = make_near(3);
  meet(pointers_to(all), {"a", "a", "b"});
  std::string offer;
  {
    const SharedRegion lent(100);
    offer = lent.offer();
    lent.memory().data()[99] = std::byte{7};
    const base::Region region = all[0]->map(1, offer, 100);
    EXPECT_EQ(region.data()[99], std::byte{7});
    EXPECT_THROW(all[0]->map(1, offer, 101), Error) << "it is smaller";
  }
  EXPECT_THROW(all[0]->map(1, offer, 100), Error) << "no longer lent";
  EXPECT_THROW(all[0]->map(1, "-", 100), Error);
}

struct FrameCounter final : Receiver {
  std::atomic<int> count{0};
  std::byte* place_for(int /*process*/, const Frame& /*frame*/) override { return nullptr; }
  bool receive(int /*process*/, const Frame& /*frame*/, std::string /*text*/) override {
    count.fetch_add(1, std::memory_order_release);  // pairs with the load of the thread that waits
    return true;
  }
};

// Groups of processes 0, 1 and 2 on one host and 3 on another.
class NearGroups : public testing::Test {
 protected:
  static constexpr int kProcesses = 4;

  NearGroups() {
    std::vector<std::vector<base::Fd>> sockets(kProcesses);
    for (auto& one : sockets) one.resize(kProcesses);
    for (int one = 0; one < kProcesses; ++one) {
      for (int other = 0; other < one; ++other) {
        std::array<int, 2> ends{};
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
        sockets[one][other] = base::Fd(ends[0]);
        sockets[other][one] = base::Fd(ends[1]);
      }
    }
    const WaitPolicy policy = {.timeout = base::kSecond};
    std::vector<HostPeers*> near;
    for (int process = 0; process < kProcesses; ++process) {
      meshes_.push_back(std::make_shared<Mesh>(process, std::vector(kProcesses, Neighbor{"a test"}),
                                               sockets[process], policy));
      near.push_back(&meshes_.back()->near());
      groups_.push_back(std::make_unique<TcpGroup>(
          meshes_.back(),
          Members{.processes = {0, 1, 2, 3}, .numbers = {1, 1, 1, 1}, .me = process}, policy));
    }
    meet(near, {"a", "a", "a", "b"});
  }
  // A mesh that ends waits for what was sent to be received.
  ~NearGroups() override {
    for (const auto& mesh : meshes_) mesh->move_surely();
  }

  // Waits like a rank that has waited for long.
  template <class Ready>
  void wait(int process, const Ready& ready) {
    while (!ready()) groups_[process]->sleep_until(base::now() + kVeryLong, ready);
  }

  // Takes every other turn of a game between two processes that write to memory. A lost wake-up
  // would be a sleep of kVeryLong.
  void play(std::atomic<int>& turn, int parity, int turns, int me, int other) {
    for (int round = parity; round < turns; round += 2) {
      wait(me, [&] { return turn.load(std::memory_order_acquire) >= round; });
      turn.store(round + 1, std::memory_order_release);  // pairs with the load above
      meshes_[me]->wake(other);
    }
  }

  std::vector<std::shared_ptr<Mesh>> meshes_;
  std::vector<std::unique_ptr<TcpGroup>> groups_;
};

TEST_F(NearGroups, AStoreWakesAProcessThatSleepsAtItsConnections) {
  std::atomic<bool> flag{false};
  std::jthread sleeper([&] { wait(0, [&] { return flag.load(std::memory_order_acquire); }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  flag.store(true, std::memory_order_release);  // pairs with the load above
  meshes_[1]->wake(0);
}

TEST_F(NearGroups, LosesNoWakeUp) {
  constexpr int kTurns = 20'000;
  std::atomic<int> turn{0};
  std::jthread other([&] { play(turn, 1, kTurns, 1, 0); });
  play(turn, 0, kTurns, 0, 1);
}

// Three threads of process 0 wait at once: for a store of process 1, for one of process 2, and for
// a frame of process 3, which is far.
TEST_F(NearGroups, NoThreadSleepsThroughWhatItWaitsFor) {
  constexpr int kTurns = 4000;
  FrameCounter here;
  FrameCounter there;
  const std::uint32_t number_here = meshes_[0]->add(here);
  const std::uint32_t number_there = meshes_[3]->add(there);
  const auto play_far = [&](const FrameCounter& counter, int me, int other, std::uint32_t number,
                            bool begins) {
    for (int round = 0; round < kTurns; ++round) {
      if (begins) meshes_[me]->send_text(other, {.kind = Kind::gather, .receiver = number}, "x");
      wait(me, [&] { return counter.count.load(std::memory_order_acquire) > round; });
      if (!begins) meshes_[me]->send_text(other, {.kind = Kind::gather, .receiver = number}, "x");
    }
  };
  std::atomic<int> first{0};
  std::atomic<int> second{0};
  {
    std::vector<std::jthread> threads;
    threads.emplace_back([&] { play(first, 0, kTurns, 0, 1); });
    threads.emplace_back([&] { play(first, 1, kTurns, 1, 0); });
    threads.emplace_back([&] { play(second, 0, kTurns, 0, 2); });
    threads.emplace_back([&] { play(second, 1, kTurns, 2, 0); });
    threads.emplace_back([&] { play_far(here, 0, 3, number_there, true); });
    threads.emplace_back([&] { play_far(there, 3, 0, number_here, false); });
  }
  meshes_[0]->remove(number_here);
  meshes_[3]->remove(number_there);
}

}  // namespace
}  // namespace plait::comm::tcp
