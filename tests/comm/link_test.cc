#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/environment.h"
#include "conformance/ranks.h"
#include "plait/communicator.h"
#include "plait/error.h"
#include "plait/link.h"

namespace plait {
namespace {

TEST(CommunicatorsLink, OfTheEnvironmentIsRefusedByTheVariablesName) {
  const Environment environment(Environment::Variables{{"PLAIT_LINK", "nonsense"}});
  try {
    run_in_threads(1, [](Communicator&) {});
    ADD_FAILURE() << "took it";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).rfind("PLAIT_LINK: the link \"nonsense\"", 0), 0U)
        << error.what();
  }
}

TEST(CommunicatorsLink, ComesFromTheEnvironmentUnlessTheCallerHasOne) {
  const Environment environment(Environment::Variables{{"PLAIT_LINK", "10gbit,20us"}});
  EXPECT_EQ(Communicator::connect().link(), parse_link("10gbit,20us"));
  EXPECT_EQ(Communicator::connect({.link = parse_link("1ms")}).link(), parse_link("1ms"));
  const Environment none;
  EXPECT_FALSE(Communicator::connect().link().has_value());
}

TEST(CommunicatorsLink, RefusesAnImpossibleOneFromTheCaller) {
  const auto refusal = [](const Link& link) {
    try {
      Communicator::connect({.link = link});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      return std::string(error.what());
    }
    return std::string("taken");
  };
  const std::string limits = "; it takes 1 byte/s at least, and an hour's latency at most";
  const Environment environment;
  EXPECT_EQ(refusal({.bytes_per_second = 0}), "connect: a link of 0 bytes/s and 0 ns" + limits);
  EXPECT_EQ(refusal({.bytes_per_second = -1}), "connect: a link of -1 bytes/s and 0 ns" + limits);
  EXPECT_EQ(refusal({.bytes_per_second = 1, .latency_ns = -5}),
            "connect: a link of 1 bytes/s and -5 ns" + limits);
  EXPECT_EQ(refusal({.bytes_per_second = std::nan("")}),
            "connect: a link of nan bytes/s and 0 ns" + limits);
  EXPECT_EQ(refusal({.bytes_per_second = 1e-300}),
            "connect: a link of 1e-300 bytes/s and 0 ns" + limits);
  EXPECT_EQ(refusal({.bytes_per_second = 1e9, .latency_ns = INT64_MAX}),
            "connect: a link of 1e+09 bytes/s and 9223372036854775807 ns" + limits);
  EXPECT_EQ(refusal({.bytes_per_second = 1, .latency_ns = 3'600'000'000'000}), "taken");
  const Environment slow(Environment::Variables{{"PLAIT_LINK", "10gbit,2h"}});
  EXPECT_THROW(Communicator::connect(), Error);
}

// On every rank, with the same words, and whatever the links come from.
TEST(CommunicatorsLink, MustBeTheSameForAllRanks) {
  const Environment environment(Environment::Variables{{"PLAIT_LINK", "1gbit,20us"}});
  const ThreadGroup group(3);
  const std::string job = fresh_job();
  const auto expect_refusal = [](const std::function<Communicator(CommunicatorOptions)>& connect,
                                 int rank) {
    CommunicatorOptions options;
    if (rank == 2) options.link = parse_link("10gbit,20us");
    const Error error = expect_error(Code::mismatch, [&] { connect(options); });
    EXPECT_EQ(error.culprit(), 2);
    EXPECT_STREQ(error.what(),
                 "rank 0 emulates a link of 1gbit,20us, and rank 2 one of 10gbit,20us: the link "
                 "(PLAIT_LINK) must be the same for all ranks");
  };
  fork_ranks(3, [&](int rank) {
    const auto connect = [&](CommunicatorOptions options) {
      options.transport = "shm";
      options.place = Place{.rank = rank, .world = 3, .job = job};
      return Communicator::connect(options);
    };
    expect_refusal(connect, rank);
  });
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      expect_refusal([&](const CommunicatorOptions& options) { return group.join(rank, options); },
                     rank);
    });
  }
}

}  // namespace
}  // namespace plait
