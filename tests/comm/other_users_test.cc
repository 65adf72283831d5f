// Processes of another user at the meeting place of a job.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/socket.h"
#include "comm/meet/meeting_place.h"
#include "comm/milestones.h"
#include "comm/rendezvous_case.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait {
namespace {

using base::Fd;
using comm::shm::name_of_job;
using namespace rendezvous_case;

constexpr uid_t kNobody = 65534;

// Tests with another user's processes: only root can make them.
class OtherUsers : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to start processes of another user";
  }

  static void become_nobody() { ASSERT_EQ(::setuid(kNobody), 0); }
};

TEST_F(OtherUsers, ThatHoldTheMeetingPlaceAreNamedAndNotTalkedTo) {
  const std::string job = fresh_job();
  const std::string name = name_of_job(job);  // of this user's job
  Milestones done;
  std::vector<std::function<void()>> processes;
  processes.emplace_back([&] {
    become_nobody();
    const auto listener = base::listen_at(name);
    ASSERT_TRUE(listener.has_value());
    done.await(0, 2);
    // No caller may have said anything.
    while (const auto caller = base::accept_from(*listener)) {
      base::Message message;
      EXPECT_NE(base::receive_message(*caller, message), base::Delivery::done) << message.bytes;
    }
  });
  for (const int rank : {0, 1}) {
    processes.emplace_back([&, rank] {
      await_listener(job);
      const Error error = expect_error(Code::system, [&] {
        Communicator::connect(options_for({.rank = rank, .world = 2, .job = job}, kLong));
      });
      EXPECT_TRUE(contains(error.what(), "the meeting place of this job is held by pid "));
      EXPECT_TRUE(contains(error.what(), " of user 65534, and not by one of user 0"))
          << error.what();
      done.reach(0);
    });
  }
  fork_all(processes);
}

TEST_F(OtherUsers, ThatTalkPerfectlyAreIgnored) {
  const std::string job = fresh_job();
  const std::string name = name_of_job(job);
  Milestones done;
  std::vector<std::function<void()>> processes;
  processes.emplace_back([&] {
    expect_group({.rank = 0, .world = 2, .job = job});
    done.reach(1);
  });
  processes.emplace_back([&] {
    await_listener(job);
    become_nobody();
    const auto socket = base::connect_to(name);
    ASSERT_TRUE(socket.has_value());
    base::send_message(*socket, hello(1, 2), Fd());
    // Hung up on.
    base::Message message;
    base::Delivery delivery = base::Delivery::not_yet;
    for (int tries = 0; tries < 20'000 && delivery == base::Delivery::not_yet; ++tries) {
      base::wait_readable({&*socket}, base::kMillisecond);
      delivery = base::receive_message(*socket, message);
    }
    EXPECT_EQ(delivery, base::Delivery::closed) << message.bytes;
    done.reach(0);
    done.await(1);
  });
  processes.emplace_back([&] {
    done.await(0);
    expect_group({.rank = 1, .world = 2, .job = job});
  });
  fork_all(processes);
}

// How much of one core this process has taken since then, and what the system has done for it.
class Share {
 public:
  double taken() const {
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin_;
    return (processor_seconds() - before_) / time.count();
  }

 private:
  static double processor_seconds() {
    rusage usage = {};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }

  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double before_ = processor_seconds();
};

// Three that call and hang up for as long as they can. The name is there for all to read. They cost
// the job one core at most, in rank 0, while it assembles: the other ranks answer no calls, and
// afterwards none does. A busy machine makes these shares smaller.
TEST_F(OtherUsers, ThatFloodTheMeetingPlaceCostOneCoreOfRankZeroAlone) {
  const std::string job = fresh_job();
  const std::string name = name_of_job(job);
  constexpr double kLittle = 0.25;  // by far less than those take that call
  Milestones done;
  const auto flood = [&] {
    await_listener(job);
    become_nobody();
    while (done.reached(0) < 3) static_cast<void>(base::connect_to(name));
  };
  std::vector<std::function<void()>> processes(3, flood);
  for (const int rank : {0, 1, 2}) {
    processes.emplace_back([&, rank] {
      if (rank == 2) {
        done.await(1, 2);
      } else {
        const Share share;
        const auto start = std::chrono::steady_clock::now();
        expect_error(options_for({.rank = rank, .world = 3, .job = job}, kTimeToMeet),
                     Code::timeout, 2, "rank 2 of 3 has not come within 2 s");
        // Its deadline, the time to tell, and a slow, busy core.
        EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(12));
        EXPECT_LT(share.taken(), rank == 0 ? 1 + kLittle : kLittle) << "rank " << rank;
        done.reach(1);
      }
      Communicator comm =
          Communicator::connect(options_for({.rank = rank, .world = 3, .job = job}, kLong));
      const Share share;
      if (rank == 2) std::this_thread::sleep_for(kShort);
      barrier(comm);
      EXPECT_LT(share.taken(), kLittle) << "rank " << rank;
      done.reach(0);
    });
  }
  fork_all(processes);
}

}  // namespace
}  // namespace plait
