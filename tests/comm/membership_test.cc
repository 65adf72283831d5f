#include "comm/session/membership.h"

#include <gtest/gtest.h>

#include <memory>

#include "comm/session/transports.h"
#include "conformance/ranks.h"

namespace plait::comm {
namespace {

std::unique_ptr<Transport> transport_of_one_rank(const WaitPolicy& policy = {}) {
  Site site = {.place = {.rank = 0, .world = 1}};
  site.policy = policy;
  return select_transport("threads", site).create(site);
}

TEST(Membership, AllowsCallsUntilTheGroupFails) {
  const auto transport = transport_of_one_rank();
  const Membership membership(*transport);
  membership.check_usable();
  membership.group().fail({.code = Code::timeout, .culprit = 0, .sentence = "late"});
  EXPECT_STREQ(expect_error(Code::timeout, [&] { membership.check_usable(); }).what(), "late");
  membership.check_not_left();
}

TEST(Membership, RefusesCallsOnceItHasLeft) {
  const auto transport = transport_of_one_rank();
  Membership membership(*transport);
  membership.leave();
  membership.leave();  // once is enough
  const Error error = expect_error(Code::invalid_argument, [&] { membership.check_usable(); });
  EXPECT_STREQ(error.what(), "this process is about to end, and rank 0 has left its groups");
}

TEST(Membership, RefusesAForkedChild) {
  const auto transport = transport_of_one_rank();
  Membership membership(*transport);
  fork_ranks(1, [&](int) {
    membership.leave();  // does nothing, because the group is the parent's
    expect_error(Code::invalid_argument, "was forked from rank 0",
                 [&] { membership.check_not_left(); });
  });
  membership.check_usable();
}

TEST(Membership, TellsAllRanksWhyACollectiveFailed) {
  const auto transport = transport_of_one_rank();
  const Membership membership(*transport);
  const auto fail = [&](const char* why) {
    try {
      throw Error(Code::system, why);
    } catch (const Error& error) {
      membership.fail_together(error);
    }
  };
  EXPECT_STREQ(expect_error(Code::system, [&] { fail("first"); }).what(), "first");
  EXPECT_STREQ(expect_error(Code::system, [&] { fail("second"); }).what(), "first");
  EXPECT_STREQ(membership.group().failure().sentence.c_str(), "first");
}

TEST(Membership, PutsWhatTheCallersHookThrewInNoOtherWords) {
  const auto transport = transport_of_one_rank(
      {.interrupted = [] { throw Error(Code::invalid_argument, "the caller's own"); }});
  const Membership membership(*transport);
  const auto call = [&] {
    try {
      membership.group().interrupt_if_asked(nullptr);
    } catch (const Error& error) {
      membership.fail_together(error);
    }
  };
  EXPECT_STREQ(expect_error(Code::invalid_argument, call).what(), "the caller's own");
  EXPECT_TRUE(contains(membership.group().failure().sentence, "was interrupted"));
}

}  // namespace
}  // namespace plait::comm
