// A forked child of a rank: its use of inherited communicators, and its parent's view of it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/ranks.h"
#include "plait/collectives.h"
#include "plait/link.h"

namespace plait {
namespace {

TEST(Fork, AChildCannotUseItsParentsCommunicator) {
  run_in_processes(2, [](Communicator& comm) {
    Mailbox& mailbox = comm.cached_mailbox({.slots = 1, .slot_bytes = 64});
    const std::string whose =
        "this process was forked from rank " + std::to_string(comm.rank()) + ", whose ";
    const std::string refusal = whose + "communicators it cannot use";
    fork_ranks(1, [&](int) {
      const std::function<void()> calls[] = {
          [&] { barrier(comm); },
          [&] { sum_of_ones(comm); },
          [&] { poll_all_reduce(comm); },
          [&] { comm.split(0, 0); },
          [&] { comm.make_mailbox({.slots = 2, .slot_bytes = 64}); },
          [&] { comm.cached_mailbox({.slots = 3, .slot_bytes = 64}); },
          [&] { comm.abort("the child says so"); }};
      for (const auto& call : calls) {
        const Error error = expect_error(Code::invalid_argument, call);
        EXPECT_EQ(std::string(error.what()), refusal);
      }
      const std::function<void()> of_mailbox[] = {
          [&] { mailbox.progress(); }, [&] { mailbox.vacant(0, 0); },
          [&] { mailbox.arrived(0, 0, {}); }, [&] { mailbox.inbox(0, 0); }};
      for (const auto& call : of_mailbox) {
        expect_error(Code::invalid_argument, whose + "mailboxes it cannot use", call);
      }
      {
        const Communicator gone = std::move(comm);
      }
    });
    // Nothing that the child has done, its destructors included, has reached the
    // group.
    EXPECT_EQ(sum_of_ones(comm), 2);
    const auto part = comm.split(0, 0);
    EXPECT_TRUE(part.has_value());
  });
}

// Forks workers, as a data loader in another thread does.
class Workers {
 public:
  explicit Workers(int most) {
    forking_ = std::jthread([this, most](const std::stop_token& stop) {
      while (!stop.stop_requested() && static_cast<int>(pids_.size()) < most) {
        const pid_t rank = ::getpid();
        const pid_t pid = ::fork();
        if (pid == 0) {
          while (::getppid() == rank) ::usleep(20'000);
          ::_exit(0);
        }
        pids_.push_back(pid);
        ::usleep(300);
      }
    });
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers() {
    forking_ = {};
    for (const pid_t pid : pids_) ::kill(pid, SIGKILL), ::waitpid(pid, nullptr, 0);
  }

  // Once no more are forked: what one of them holds of plait's, after it had time to let go of it.
  std::string holdings() {
    forking_ = {};
    for (int tries = 0; tries < 500; ++tries) {
      held_.clear();
      for (const pid_t pid : pids_) look_at("/proc/" + std::to_string(pid));
      if (held_.empty()) break;
      ::usleep(1000);
    }
    return held_;
  }

 private:
  void look_at(const std::string& process) {
    std::ifstream maps(process + "/maps");
    for (std::string line; std::getline(maps, line);) {
      if (contains(line, "memfd:plait")) held_ += line + '\n';
    }
    for (const auto& entry : std::filesystem::directory_iterator(process + "/fd")) {
      if (entry.path().filename().string().size() == 1 && entry.path().filename() < "3") continue;
      std::error_code gone;
      const std::string target = std::filesystem::read_symlink(entry, gone).string();
      if (contains(target, "memfd:plait") || contains(target, "socket:")) held_ += target + '\n';
    }
  }

  std::vector<pid_t> pids_;
  std::string held_;
  std::jthread forking_;
};

TEST(Fork, WorkersOfEveryMomentBreakNoLaterConnect) {
  const std::string job = fresh_job();
  fork_ranks(2, [&](int rank) {
    Workers workers(100);
    for (int round = 0; round < 20; ++round) {
      Communicator comm = Communicator::connect(shm_options(rank, 2, job));
      ASSERT_EQ(sum_of_ones(comm), 2);
      auto part = comm.split(0, 0);
      const auto mailbox = part->make_mailbox({.slots = 1, .slot_bytes = 64});
      EXPECT_EQ(mailbox->desc().slots, 1);
    }
    EXPECT_EQ(workers.holdings(), "");
  });
}

// Whatever a child inherits it can drop: it has none of the memory, and touches none.
TEST(Fork, AChildDropsWhatItInherits) {
  const auto body = [](Communicator& comm) {
    auto part = comm.split(0, 0);
    auto linked = std::make_optional(comm.with_link(parse_link("25gbit,5us")));
    auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = 64});
    auto linked_mailbox = linked->make_mailbox({.slots = 1, .slot_bytes = 64});
    comm.cached_mailbox({.slots = 1, .slot_bytes = 64});
    EXPECT_FALSE(mailbox->arrived(0, 0, {}));
    float sum = 1;
    auto pending = std::make_optional(start_all_reduce({&sum, 1}, {&sum, 1}, comm));
    fork_ranks(1, [&](int) {
      const std::function<void()> calls[] = {[&] { linked_mailbox->progress(); },
                                             [&] { barrier(*part); }, [&] { barrier(*linked); }};
      for (const auto& call : calls) expect_error(Code::invalid_argument, call);
      pending.reset();
      mailbox.reset();
      linked_mailbox.reset();
      linked.reset();
      part.reset();
      const Communicator gone = std::move(comm);
    });
    pending->wait();
    EXPECT_EQ(sum, static_cast<float>(comm.world()));
  };
  run_in_processes(2, body);
  run_in_threads(2, body);
}

}  // namespace
}  // namespace plait
