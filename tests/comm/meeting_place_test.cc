// The place at which ranks meet, with a private folder and without (comm/meet/meeting_place.h).
#include "comm/meet/meeting_place.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/socket.h"
#include "comm/milestones.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait {
namespace {

using comm::shm::MeetingPlace;
using comm::shm::name_of_job;

constexpr std::chrono::seconds kLong{30};
constexpr std::chrono::milliseconds kShort{500};
constexpr uid_t kNobody = 65534;

// A folder as systemd gives one to a user who has logged in.
class Folder {
 public:
  Folder() {
    std::string name = "/tmp/plait-meeting-XXXXXX";
    path_ = ::mkdtemp(name.data());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }
  std::size_t files() const {
    const std::filesystem::directory_iterator all(path_);
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }
  void await_file() const {
    for (int tries = 0; tries < 20'000 && files() == 0; ++tries) ::usleep(1000);
    EXPECT_EQ(files(), 1U);
  }

 private:
  std::string path_;
};

// In a child of the test.
void see(const Folder* folder) {
  if (folder == nullptr) {
    ::unsetenv("XDG_RUNTIME_DIR");
  } else {
    ::setenv("XDG_RUNTIME_DIR", folder->path().c_str(), 1);
  }
}

CommunicatorOptions options_for(int rank, const std::string& job,
                                std::chrono::milliseconds timeout = kLong) {
  return {
      .transport = "shm", .place = Place{.rank = rank, .world = 2, .job = job}, .timeout = timeout};
}

void expect_group(int rank, const std::string& job) {
  Communicator comm = Communicator::connect(options_for(rank, job));
  EXPECT_EQ(sum_of_ones(comm), 2);
}

Error error_of(int rank, const std::string& job) {
  try {
    Communicator::connect(options_for(rank, job, kShort));
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "rank " << rank << " connected";
  return {Code::system, ""};
}

// The name is held by a socket that takes no calls any more, as a forked child may hold it.
TEST(MeetingPlace, AsksTheCallerWhileItWaitsForItsName) {
  struct Ended {};
  const std::string name = name_of_job(fresh_job());
  const auto holder = base::listen_at(name);
  ASSERT_TRUE(holder.has_value());
  ASSERT_EQ(::shutdown(holder->get(), SHUT_RDWR), 0);
  int questions = 0;
  const comm::shm::Watch watch = [&](int /*peer*/) {
    if (++questions == 3) throw Ended{};
  };
  EXPECT_THROW(MeetingPlace(name, base::now() + 30 * base::kSecond, watch), Ended);
}

TEST(MeetingPlace, IsInThePrivateFolderAndLeavesNothingThere) {
  const Folder folder;
  const std::string job = fresh_job();
  fork_ranks(2, [&](int rank) {
    see(&folder);
    if (rank == 1) folder.await_file();
    expect_group(rank, job);
  });
  EXPECT_EQ(folder.files(), 0U);
}

// Nothing listens in the kernel here: only the folder can bring them together.
TEST(MeetingPlace, IsFoundInThePrivateFolderAlone) {
  const Folder folder;
  const std::string job = fresh_job();
  see(&folder);
  MeetingPlace place(name_of_job(job), base::now() + base::kSecond);
  comm::shm::Finder finder(name_of_job(job));
  auto caller = finder.call();
  ASSERT_TRUE(caller.has_value());
  ASSERT_EQ(place.listeners().size(), 2U);
  EXPECT_FALSE(base::accept_from(place.listeners()[0]).has_value());
  EXPECT_TRUE(base::accept_from(place.listeners()[1]).has_value());
  place.close();
  EXPECT_FALSE(finder.call().has_value());
  EXPECT_EQ(folder.files(), 0U);
  see(nullptr);
}

TEST(MeetingPlace, RanksOfWhichOneSeesNoFolderMeetAllTheSame) {
  const Folder folder;
  for (const int blind : {0, 1}) {
    const std::string job = fresh_job();
    fork_ranks(2, [&](int rank) {
      see(rank == blind ? nullptr : &folder);
      expect_group(rank, job);
    });
  }
  EXPECT_EQ(folder.files(), 0U);
}

TEST(MeetingPlace, FoldersThatOthersCouldEnterAreNotUsed) {
  const Folder folder;
  for (const mode_t mode : {0750, 0701, 0777}) {
    ::chmod(folder.path().c_str(), mode);
    see(&folder);
    const MeetingPlace place(name_of_job(fresh_job()), base::now() + base::kSecond);
    EXPECT_EQ(place.listeners().size(), 1U) << mode;
    EXPECT_EQ(folder.files(), 0U);
  }
  for (const char* path : {"", "relative", "/no/such/folder", "/proc/version"}) {
    ::setenv("XDG_RUNTIME_DIR", path, 1);
    const MeetingPlace place(name_of_job(fresh_job()), base::now() + base::kSecond);
    EXPECT_EQ(place.listeners().size(), 1U) << path;
  }
  see(nullptr);
}

TEST(MeetingPlace, AFolderThatTakesNoSocketIsAsGoodAsNone) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write in any folder";
  const Folder folder;
  ::chmod(folder.path().c_str(), 0500);
  see(&folder);
  const MeetingPlace place(name_of_job(fresh_job()), base::now() + base::kSecond);
  EXPECT_EQ(place.listeners().size(), 1U);
  see(nullptr);
}

// A killed rank's file keeps neither its own job nor another from meeting.
TEST(MeetingPlace, WhatAKilledRankLeftIsRemovedByTheNext) {
  const Folder folder;
  const std::string job = fresh_job();
  const std::string other = fresh_job();
  Milestones there;
  fork_ranks(2, [&](int rank) {
    see(&folder);
    const MeetingPlace place(name_of_job(rank == 0 ? job : other), base::now() + base::kSecond);
    there.reach(0);
    there.await(0, 2);  // a place in use by one is not removed by the other
    ::_exit(0);
  });
  EXPECT_EQ(folder.files(), 2U);
  ::usleep(200'000);  // until nothing that starts to listen looks like it
  fork_ranks(2, [&](int rank) {
    see(&folder);
    expect_group(rank, job);
  });
  EXPECT_EQ(folder.files(), 0U);
}

TEST(MeetingPlace, RanksRemoveTheFileOfTheirDeadRankZero) {
  const Folder folder;
  const std::string job = fresh_job();
  fork_ranks(2, [&](int rank) {
    see(&folder);
    if (rank == 0) {
      const MeetingPlace place(name_of_job(job), base::now() + base::kSecond);
      base::wait_readable({&place.listeners()[1]}, 30 * base::kSecond);
      ::usleep(100'000);
      ::_exit(0);
    }
    folder.await_file();
    expect_error(Code::peer_lost, 0, [&] { Communicator::connect(options_for(1, job)); });
  });
  EXPECT_EQ(folder.files(), 0U);
}

TEST(MeetingPlace, ASecondRankZeroInTheFolderIsRefused) {
  const Folder folder;
  const std::string job = fresh_job();
  see(&folder);
  const MeetingPlace first(name_of_job(job), base::now() + base::kSecond);
  try {
    const MeetingPlace second(name_of_job(job), base::now() + base::kSecond);
    ADD_FAILURE() << "a second one";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_TRUE(contains(error.what(), "connect at once as rank 0")) << error.what();
  }
  EXPECT_EQ(folder.files(), 1U);
  see(nullptr);
}

// Only root can make processes of another user.
class ForeignHolder : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to start a process of another user";
  }

  // Runs `ranks` while another user's process holds the job's name in the kernel.
  static void run(const std::string& job, const std::function<void(int)>& rank) {
    Milestones holds;
    const std::string name = name_of_job(job);  // with this user in it
    fork_ranks(3, [&](int index) {
      if (index == 2) {
        ASSERT_EQ(::setuid(kNobody), 0);
        const auto listener = base::listen_at(name);
        ASSERT_TRUE(listener.has_value());
        holds.reach(0);
        holds.await(1, 2);
        return;
      }
      holds.await(0);
      rank(index);
      holds.reach(1);
    });
  }
};

TEST_F(ForeignHolder, DoesNotKeepRanksFromMeetingInTheirFolder) {
  const Folder folder;
  const std::string job = fresh_job();
  run(job, [&](int rank) {
    see(&folder);
    expect_group(rank, job);
  });
  EXPECT_EQ(folder.files(), 0U);
}

TEST_F(ForeignHolder, IsNamedWhereSomeRanksSeeNoFolder) {
  const Folder folder;
  for (const int blind : {0, 1}) {
    const std::string job = fresh_job();
    run(job, [&](int rank) {
      see(rank == blind ? nullptr : &folder);
      const Error error = error_of(rank, job);
      const std::string held = "the meeting place of this job is held by pid ";
      EXPECT_TRUE(contains(error.what(), held)) << error.what();
      if (rank == blind) {
        EXPECT_EQ(error.code(), Code::system) << error.what();
        return;
      }
      EXPECT_EQ(error.code(), Code::timeout) << error.what();
      EXPECT_TRUE(contains(error.what(), "not come within 500 ms")) << error.what();
      EXPECT_TRUE(contains(error.what(), "only to " + folder.path() +
                                             ": do all ranks have the same XDG_RUNTIME_DIR?"))
          << error.what();
    });
  }
}

// The very text, since ranks of different builds meet by it.
TEST(NameOfJob, IsTheSameInEveryBuild) {
  const std::string name = name_of_job(std::string(200, 'j'));
  const std::string user = std::to_string(::geteuid());
  if (user != "0") GTEST_SKIP() << "the number is of root's name";
  EXPECT_EQ(name, "plait-0-" + std::string(52, 'j') + "-5489864401718141679");
}

TEST(NameOfJob, IsTheUsersOwnAndFits) {
  EXPECT_EQ(name_of_job("a"), base::sentence("plait-", ::geteuid(), "-a"));
  const std::string base(200, 'j');
  EXPECT_LE(name_of_job(base + "1").size(), 100U);
  EXPECT_NE(name_of_job(base + "1"), name_of_job(base + "2"));
  EXPECT_EQ(name_of_job(base + "1"), name_of_job(base + "1"));
}

}  // namespace
}  // namespace plait
