// Threads of one rank that wait at connections which any of them may read from.
#include "comm/control/mesh.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/control/tcp_group.h"

namespace plait::comm::tcp {
namespace {

// Sleeps of the tests end by a wake-up, or the test has failed.
constexpr base::Nanoseconds kForEver = 60 * base::kSecond;
constexpr base::Nanoseconds kPatience = 30 * base::kSecond;

const WaitPolicy kPolicy = {.timeout = base::kSecond};

class Counter final : public Receiver {
 public:
  explicit Counter(Mesh& mesh) : mesh_(mesh), number_(mesh.add(*this)) {}
  ~Counter() override { mesh_.remove(number_); }

  int count() const { return count_.load(std::memory_order_acquire); }
  std::uint32_t number() const { return number_; }

  // Waits like a rank that has waited for long.
  void wait_for(int count) {
    for (;;) {
      const std::uint64_t seen = mesh_.news();
      mesh_.move();
      if (this->count() >= count) return;
      mesh_.sleep(base::now() + kForEver, seen);
    }
  }

  std::byte* place_for(int /*process*/, const Frame& /*frame*/) override { return nullptr; }
  bool receive(int /*process*/, const Frame& frame, std::string /*text*/) override {
    if (frame.kind == Kind::gather) count_.fetch_add(1, std::memory_order_release);
    return true;
  }

 private:
  Mesh& mesh_;
  std::atomic<int> count_{0};
  std::uint32_t number_;
};

// Processes 0 and 1, which are one here. `world` - 2 others never say anything.
class MeshTest : public testing::TestWithParam<int> {
 protected:
  MeshTest() {
    const int world = GetParam();
    std::vector<base::Fd> near(world);
    std::vector<base::Fd> far(world);
    for (int process = 0; process < world; ++process) {
      if (process != 0) join(near[process], process == 1 ? far[0] : silent_.emplace_back());
      if (process > 1) join(far[process], silent_.emplace_back());
    }
    const std::vector<Neighbor> names(world, Neighbor{"a test"});
    near_ = std::make_unique<Mesh>(0, names, near, kPolicy);
    far_ = std::make_unique<Mesh>(1, names, far, kPolicy);
  }

  static void join(base::Fd& one, base::Fd& other) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
    one = base::Fd(ends[0]);
    other = base::Fd(ends[1]);
  }

  static void send_message(Mesh& from, int process, const Counter& to) {
    from.send_text(process, {.kind = Kind::gather, .receiver = to.number()}, "text");
  }

  std::vector<base::Fd> silent_;
  std::unique_ptr<Mesh> near_;
  std::unique_ptr<Mesh> far_;
};

// Takes chunks of any size, and notes in which order chunks and credits come.
class Order final : public Receiver {
 public:
  explicit Order(std::size_t bytes) : place_(bytes) {}

  const std::string& order() const { return order_; }

  std::byte* place_for(int /*process*/, const Frame& /*frame*/) override { return place_.data(); }
  bool receive(int /*process*/, const Frame& frame, std::string /*text*/) override {
    order_ += frame.kind == Kind::credit ? 'c' : frame.kind == Kind::chunk ? 'C' : 't';
    return true;
  }

 private:
  std::vector<std::byte> place_;
  std::string order_;
};

TEST_P(MeshTest, CreditsGoBeforeChunksThatHaveNotBegun) {
  constexpr std::size_t kBytes = std::size_t{4} << 20;  // more than the kernel takes
  Order order(kBytes);
  const std::uint32_t number = near_->add(order);
  const auto bytes = std::make_shared<const std::vector<std::byte>>(kBytes);
  const auto send = [&](Kind kind, std::size_t size) {
    far_->send(0, {.kind = kind, .receiver = number, .bytes = size},
               size == 0 ? nullptr : bytes->data(), bytes, Mesh::Urgency::now);
  };
  for (int i = 0; i < 3; ++i) send(Kind::chunk, kBytes);
  send(Kind::credit, 0);
  far_->send_text(0, {.kind = Kind::gather, .receiver = number}, "text");
  send(Kind::credit, 0);
  const base::Nanoseconds until = base::now() + kPatience;
  while (order.order().size() < 6 && base::now() < until) {
    far_->move_surely();
    near_->move_surely();
  }
  // The first chunk has begun. All else, of which the order matters, stays in it.
  EXPECT_EQ(order.order(), "CccCCt");
  near_->remove(number);
}

TEST_P(MeshTest, ACreditThatIsAloneGoesWithTheNextFrame) {
  Order order(1);
  const std::uint32_t number = near_->add(order);
  const auto send = [&](Kind kind, std::size_t size, Mesh::Urgency urgency) {
    static constexpr std::byte kByte{1};
    far_->send(0, {.kind = kind, .receiver = number, .bytes = size}, &kByte, nullptr, urgency);
  };
  const auto end_call = [&] {
    far_->end_call();
    near_->move_surely();
  };
  send(Kind::chunk, 1, Mesh::Urgency::now);
  send(Kind::credit, 0, Mesh::Urgency::soon);
  EXPECT_TRUE(far_->unsent().empty());
  end_call();
  EXPECT_EQ(order.order(), "C");
  EXPECT_FALSE(far_->is_sent(0));
  send(Kind::chunk, 1, Mesh::Urgency::now);
  end_call();
  EXPECT_EQ(order.order(), "CcC");
  send(Kind::credit, 0, Mesh::Urgency::soon);
  send(Kind::credit, 0, Mesh::Urgency::soon);
  EXPECT_EQ(far_->unsent().size(), 1U);
  end_call();
  EXPECT_EQ(order.order(), "CcCcc");
  send(Kind::credit, 0, Mesh::Urgency::now);
  near_->move_surely();
  EXPECT_EQ(order.order(), "CcCccc");
  near_->remove(number);
}

// The root of a broadcast gets nothing else from the others, and goes on by their credits.
TEST_P(MeshTest, ACreditToWhomNoChunkWentIsNotKept) {
  Order order(1);
  const std::uint32_t number = near_->add(order);
  const auto send = [&](Kind kind, std::size_t size) {
    static constexpr std::byte kByte{1};
    far_->send(0, {.kind = kind, .receiver = number, .bytes = size}, &kByte, nullptr,
               Mesh::Urgency::soon);
  };
  const auto end_call = [&] {
    far_->end_call();
    near_->move_surely();
  };
  send(Kind::chunk, 1);
  end_call();
  send(Kind::credit, 0);
  EXPECT_EQ(far_->unsent().size(), 1U);
  end_call();
  EXPECT_EQ(order.order(), "Cc");
  near_->remove(number);
}

TEST_P(MeshTest, NoWaitSleepsForWhatTheKernelTakesAtOnce) {
  const std::shared_ptr<Mesh> mesh = std::move(near_);
  const std::vector<std::uint32_t> numbers(GetParam(), 1);
  Members members = {.processes = {}, .numbers = numbers, .me = 0};
  for (int process = 0; process < GetParam(); ++process) members.processes.push_back(process);
  TcpGroup group(mesh, std::move(members), kPolicy);
  base::Nanoseconds fastest = kForEver;
  for (int turn = 0; turn < 20; ++turn) {
    const base::Nanoseconds start = base::now();
    int asked = 0;
    group.wait_for_peers([&](int process) { return process != 1 || ++asked > 1; },
                         [](int) { return "a test waits"; });
    fastest = std::min(fastest, base::now() - start);
  }
  EXPECT_LT(fastest, base::kMillisecond / 2);  // a sleep takes twice that
}

TEST_P(MeshTest, WhatAnotherThreadHasReceivedEndsASleep) {
  Counter counter(*near_);
  const std::uint64_t seen = near_->news();
  send_message(*far_, 0, counter);
  while (counter.count() == 0) near_->move_surely();  // as another thread would
  const base::Nanoseconds start = base::now();
  near_->sleep(start + kForEver, seen);
  EXPECT_LT(base::now() - start, kPatience);
}

TEST_P(MeshTest, AWakeUpReachesEveryThread) {
  for (int turn = 0; turn < 200; ++turn) {
    const std::uint64_t seen = near_->news();
    const base::Nanoseconds start = base::now();
    std::vector<std::jthread> threads;
    threads.reserve(3);
    for (int thread = 0; thread < 3; ++thread)
      threads.emplace_back([&] { near_->sleep(start + kForEver, seen); });
    near_->wake();
    threads.clear();
    ASSERT_LT(base::now() - start, kPatience) << "turn " << turn;
  }
}

// Two threads at each end send to and fro, and each of them receives for the other.
TEST_P(MeshTest, NoThreadSleepsThroughWhatItWaitsFor) {
  constexpr int kTurns = 500;
  Counter near_counters[] = {Counter(*near_), Counter(*near_)};
  Counter far_counters[] = {Counter(*far_), Counter(*far_)};
  const base::Nanoseconds start = base::now();
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 2; ++thread) {
      threads.emplace_back([&, thread] {
        for (int turn = 1; turn <= kTurns; ++turn) {
          send_message(*near_, 1, far_counters[thread]);
          near_counters[thread].wait_for(turn);
        }
      });
      threads.emplace_back([&, thread] {
        for (int turn = 1; turn <= kTurns; ++turn) {
          far_counters[thread].wait_for(turn);
          send_message(*far_, 0, near_counters[thread]);
        }
      });
    }
  }
  EXPECT_LT(base::now() - start, kPatience);
}

// Has counted a chunk to the other process that does not come from it before the test says so.
class LateCarrier final : public Carrier {
 public:
  std::uint32_t come = 0;

  std::string_view name() const override { return "late"; }
  std::string route_to(int /*process*/) const override { return "a way"; }
  std::shared_ptr<const void> hold(const base::Region& /*memory*/) override { return nullptr; }
  void send(int /*process*/, const Frame& /*frame*/, const std::byte* /*payload*/,
            std::shared_ptr<const void> /*owner*/) override {}
  bool move(const Connection::Find& /*find*/) override { return false; }
  std::uint32_t sent_to(int /*process*/) const override { return 1; }
  std::uint32_t come_from(int /*process*/) const override { return come; }
  bool is_sent(int /*process*/) const override { return true; }
  bool is_received(int /*process*/, std::uint32_t /*count*/) override { return true; }
  void note_credit(int /*process*/) override {}
  const std::string& error_of(int /*process*/) const override { return no_error_; }
  int descriptor() const override { return -1; }
  bool arm() override { return true; }

 private:
  std::string no_error_;
};

class FarewellTest : public MeshTest {
 protected:
  FarewellTest() {
    auto carrier = std::make_unique<LateCarrier>();
    late_ = carrier.get();
    near_->carry_by(std::move(carrier));
    far_->carry_by(std::make_unique<LateCarrier>());
  }
  ~FarewellTest() override { near_->remove(number_); }

  // The far process says farewell to the receiver, whose last chunk is on its way, and ends.
  void leave() {
    far_->send_text(0, {.kind = Kind::farewell, .receiver = number_}, "");
    near_->move_surely();  // takes the farewell
    far_.reset();
    near_->move_surely();  // and sees the end
    ASSERT_TRUE(near_->is_closed_by(1));
    EXPECT_EQ(order_.order(), "");
  }

  Order order_{1};
  std::uint32_t number_ = near_->add(order_);
  LateCarrier* late_ = nullptr;
};

TEST_P(FarewellTest, OneThatHasSaidItIsNotLostBeforeItsLastChunkCame) {
  leave();
  EXPECT_EQ(near_->loss_of(1, number_), "");
  late_->come = 1;
  near_->move_surely();
  EXPECT_EQ(order_.order(), "t");
  EXPECT_NE(near_->loss_of(1, number_), "");
}

// It may have been killed after it left the one group.
TEST_P(FarewellTest, OneThatHasSaidItToAnotherGroupIsLost) {
  leave();
  EXPECT_NE(near_->loss_of(1, number_ + 1), "");
  EXPECT_NE(near_->loss_of(1), "");
}

TEST_P(FarewellTest, OneWhoseLastChunkDoesNotComeIsLostAfterAWhile) {
  leave();
  const base::Nanoseconds start = base::now();
  while (near_->loss_of(1, number_).empty() && base::now() < start + kPatience)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_NE(near_->loss_of(1, number_), "");
  EXPECT_GE(base::now() - start, kPolicy.lost_after / 2);
}

INSTANTIATE_TEST_SUITE_P(Few, FarewellTest, testing::Values(2));
INSTANTIATE_TEST_SUITE_P(Few, MeshTest, testing::Values(2));
INSTANTIATE_TEST_SUITE_P(Many, MeshTest, testing::Values(20));

}  // namespace
}  // namespace plait::comm::tcp
