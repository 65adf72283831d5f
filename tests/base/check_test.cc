#include "base/check.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "tensor/sentence_of.h"

namespace plait::base {
namespace {

TEST(Check, RefusesWithOneSentenceOfItsParts) {
  const int slot = 7;
  const auto check = [&](int slots) {
    PLAIT_CHECK(slot < slots, "post: slot ", slot, " but the mailbox has ", slots);
  };
  EXPECT_NO_THROW(check(8));
  EXPECT_EQ(sentence_of([&] { check(7); }), "post: slot 7 but the mailbox has 7");
}

TEST(Check, MakesNoSentenceWhereNothingIsWrong) {
  int made = 0;
  PLAIT_CHECK(made == 0, "part ", ++made);
  EXPECT_EQ(made, 0);
}

TEST(Check, BelongsToTheIfBeforeAnElse) {
  bool other = false;
  if (other)
    PLAIT_CHECK(false, "not this one");
  else
    other = true;
  EXPECT_TRUE(other);
}

TEST(FailErrno, AddsTheReasonOfTheSystem) {
  const auto fail_with = [](int reason) {
    return sentence_of(
        [&] {
          errno = reason;
          fail_errno("cannot open the file");
        },
        Code::system);
  };
  EXPECT_EQ(fail_with(ENOENT), "cannot open the file: No such file or directory");
  EXPECT_EQ(fail_with(EACCES), "cannot open the file: Permission denied");
}

}  // namespace
}  // namespace plait::base
