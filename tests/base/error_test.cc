#include "plait/error.h"

#include <gtest/gtest.h>

#include <string>

namespace plait {
namespace {

TEST(Errors, HaveACodeASentenceAndPerhapsACulprit) {
  try {
    throw Error(Code::peer_lost, "all_reduce: rank 3 was lost", 3);
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "all_reduce: rank 3 was lost");
    const auto* lost = dynamic_cast<const Error*>(&error);
    ASSERT_NE(lost, nullptr);
    EXPECT_EQ(lost->code(), Code::peer_lost);
    EXPECT_EQ(lost->culprit(), 3);
  }
  EXPECT_EQ(Error(Code::timeout, "").culprit(), Error::kNoRank);
}

// A name that the caller gave may hold one.
TEST(Errors, ShowZeros) {
  using namespace std::string_literals;
  EXPECT_STREQ(Error(Code::invalid_argument, "there is no backend ve\0ctor"s).what(),
               "there is no backend ve\\0ctor");
}

TEST(Errors, NameTheirCodes) {
  EXPECT_EQ(name(Code::invalid_argument), "invalid_argument");
  EXPECT_EQ(name(Code::mismatch), "mismatch");
  EXPECT_EQ(name(Code::peer_lost), "peer_lost");
  EXPECT_EQ(name(Code::timeout), "timeout");
  EXPECT_EQ(name(Code::system), "system");
}

// A program may be older than the library.
TEST(Errors, HaveANameForACodeThatIsNotKnown) { EXPECT_EQ(name(static_cast<Code>(99)), "unknown"); }

}  // namespace
}  // namespace plait
