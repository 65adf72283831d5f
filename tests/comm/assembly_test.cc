// How rank 0 admits the others (comm/meet/assembly.h), where they come in an order that only a test
// can arrange; tests/comm/rendezvous_test.cc has the rest.
#include "comm/meet/assembly.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "conformance/ranks.h"
#include "plait/communicator.h"

namespace plait::comm::shm {
namespace {

std::optional<Error> error_of(const Place& place) {
  try {
    Communicator::connect(
        {.transport = "shm", .place = place, .timeout = std::chrono::seconds(30)});
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

// Rank 0 finds all of them at once, as they are there before it.
TEST(Assembly, TellsTheRanksThatCameTogetherWithAForeignOne) {
  const std::string job = fresh_job();
  fork_ranks(6, [&](int rank) {
    if (rank != 0) {
      const auto error = error_of({.rank = rank, .world = rank == 3 ? 7 : 6, .job = job});
      ASSERT_TRUE(error.has_value());
      EXPECT_EQ(error->code(), Code::mismatch) << error->what();
      EXPECT_EQ(error->culprit(), 3) << error->what();
      return;
    }
    const Endpoint endpoint = {.rank = 0, .world = 6, .timeout = 30 * base::kSecond};
    MeetingPlace place(name_of_job(job), base::now() + endpoint.timeout);
    ::usleep(400'000);
    EXPECT_THROW(assemble(std::move(place), endpoint), Error);
  });
}

TEST(Assembly, AVerdictComesAsItWasGiven) {
  const Error given(Code::timeout, "ranks 1, 3 of 4 have not come", 1);
  const std::string verdict = encode_failure(given);
  EXPECT_TRUE(is_failure(verdict));
  const Error error = expect_error(Code::timeout, [&] { raise_failure(verdict); });
  EXPECT_STREQ(error.what(), given.what());
  EXPECT_EQ(error.culprit(), 1);
}

TEST(Assembly, AVerdictThatMakesNoSenseIsAnErrorToo) {
  for (const char* verdict : {"!", "!why", "!x 1 why", "!1 x why", "!99 1 why"}) {
    const Error error = expect_error(Code::system, [&] { raise_failure(verdict); });
    EXPECT_STREQ(error.what(), "rank 0 has ended the meeting for an unknown reason");
  }
}

}  // namespace
}  // namespace plait::comm::shm
