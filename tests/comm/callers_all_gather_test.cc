// Ranks that find each other through the caller's own store.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "base/host.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait {
namespace {

CommunicatorOptions options_for(int rank, int world) {
  return {.transport = "shm",
          .place = Place{.rank = rank, .world = world},
          .timeout = std::chrono::seconds(30)};
}

void expect_refusal(const CommunicatorOptions& options, const std::string& sentence) {
  const Error error = expect_error(Code::invalid_argument, [&] { Communicator::connect(options); });
  EXPECT_EQ(error.culprit(), Error::kNoRank);
  EXPECT_EQ(std::string(error.what()), sentence);
}

// An all_gather as a framework's store would offer it: through files.
class FileStore {
 public:
  explicit FileStore(int world)
      : world_(world),
        folder_(std::filesystem::temp_directory_path() / ("plait-store-" + fresh_job())) {
    std::filesystem::create_directory(folder_);
  }
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;
  ~FileStore() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::vector<std::string> all_gather(int rank, const std::string& mine) const {
    const auto part = folder_ / (std::to_string(rank) + ".part");
    std::ofstream(part) << mine;
    std::filesystem::rename(part, folder_ / std::to_string(rank));
    std::vector<std::string> all(world_);
    for (int peer = 0; peer < world_; ++peer) {
      const auto theirs = folder_ / std::to_string(peer);
      for (int tries = 0; tries < 20'000 && !std::filesystem::exists(theirs); ++tries)
        ::usleep(1000);
      std::getline(std::ifstream(theirs), all[peer], '\0');
    }
    return all;
  }

 private:
  int world_;
  std::filesystem::path folder_;
};

TEST(CallersAllGather, BringsRanksTogether) {
  const FileStore store(3);
  fork_ranks(3, [&](int rank) {
    CommunicatorOptions options = options_for(rank, 3);
    options.all_gather = [&](const std::string& mine) { return store.all_gather(rank, mine); };
    Communicator comm = Communicator::connect(options);
    auto sum = static_cast<float>(rank);
    all_reduce({&sum, 1}, comm);
    EXPECT_EQ(sum, 3);
  });
}

TEST(CallersAllGather, MustReturnAPartOfEveryRank) {
  const FileStore store(2);
  fork_ranks(2, [&](int rank) {
    CommunicatorOptions options = options_for(rank, 2);
    options.all_gather = [&](const std::string& mine) {
      auto all = store.all_gather(rank, mine);
      all.pop_back();
      return all;
    };
    expect_refusal(options, "the caller's all_gather returned 1 parts in a world of 2");
  });
}

TEST(CallersAllGather, MustReturnWhatWasSent) {
  const std::string long_text(4000, 'x');
  for (const std::string& text : {std::string(), std::string("nonsense"), long_text}) {
    for (const int rank : {0, 1}) {
      CommunicatorOptions options = options_for(rank, 2);
      options.all_gather = [&](const std::string&) { return std::vector<std::string>(2, text); };
      const std::string shown = text.size() > 40 ? text.substr(0, 40) + "..." : text;
      expect_refusal(options, "the caller's all_gather returned \"" + shown +
                                  "\" for rank 0, which it cannot have sent");
    }
  }
}

// The ranks claim to be on two hosts, and are refused at once, before any deadline.
TEST(CallersAllGather, RefusesRanksOfAnotherHost) {
  const FileStore store(4);
  fork_ranks(4, [&](int rank) {
    CommunicatorOptions options = options_for(rank, 4);
    options.all_gather = [&](std::string mine) {
      const auto host = mine.find(' ') + 1;
      EXPECT_EQ(mine.substr(host, mine.find(' ', host) - host), base::host_id());
      if (rank == 1 || rank == 3) mine.replace(host, 8, "elsewher");
      return store.all_gather(rank, mine);
    };
    expect_refusal(options,
                   "the shm transport shares the memory of one host; ranks 1 and 3 are on another "
                   "host than rank 0");
  });
}

TEST(CallersAllGather, RefusesRanksThatCannotReachTheMeetingPlace) {
  const FileStore store(2);
  fork_ranks(2, [&](int rank) {
    CommunicatorOptions options = options_for(rank, 2);
    options.all_gather = [&](const std::string& mine) {
      const std::string elsewhere = mine.substr(0, mine.rfind(' ')) + " net:[1]";
      return store.all_gather(rank, rank == 1 ? elsewhere : mine);
    };
    expect_refusal(options,
                   "the shm transport needs one network namespace to meet in; rank 1 is in "
                   "another than rank 0");
  });
}

TEST(CallersAllGather, RefusesRanksOfAnotherTransport) {
  for (const int odd : {0, 2}) {
    const FileStore store(3);
    fork_ranks(3, [&](int rank) {
      CommunicatorOptions options = options_for(rank, 3);
      if (rank == odd) options.transport = "tcp";
      options.all_gather = [&](const std::string& mine) { return store.all_gather(rank, mine); };
      const Error error = expect_error(Code::mismatch, [&] { Communicator::connect(options); });
      const bool is_first = odd == 0;
      EXPECT_EQ(error.culprit(), is_first ? 1 : 2);
      EXPECT_STREQ(error.what(),
                   is_first ? "rank 1 uses the transport shm, rank 0 tcp: PLAIT_TRANSPORT must be "
                              "the same for all ranks"
                            : "rank 2 uses the transport tcp, rank 0 shm: PLAIT_TRANSPORT must be "
                              "the same for all ranks");
    });
  }
}

TEST(CallersAllGather, ItsOwnExceptionComesThrough) {
  CommunicatorOptions options = options_for(0, 2);
  options.all_gather = [](const std::string&) -> std::vector<std::string> {
    throw std::runtime_error("the store is closed");
  };
  EXPECT_THROW(Communicator::connect(options), std::runtime_error);
}

}  // namespace
}  // namespace plait
