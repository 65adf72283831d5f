// The suites of conformance/ over UCX, with ranks that share hosts.
#include <string>
#include <vector>

#include "conformance/collectives.h"
#include "conformance/mailbox.h"
#include "conformance/ranks.h"
#include "conformance/transport.h"

namespace plait::conformance {
namespace {

// Ranks of a host share memory, and reach the others by UCX.
RankMaker placed(const std::string& name, const std::vector<int>& hosts) {
  return {.name = name, .run = over_hosts(hosts, "ucx"), .sees_calls = false, .one_host = false};
}

const RankMaker kTwoAndTwo = placed("two_and_two_of_", {0, 0, 1, 1});
const RankMaker kThreeAndOne = placed("three_and_one_of_", {0, 0, 0, 1});

INSTANTIATE_TEST_SUITE_P(TwoAndTwoUcx, TransportConformance, worlds_of(kTwoAndTwo, {4}), case_name);
INSTANTIATE_TEST_SUITE_P(TwoAndTwoUcx, MailboxConformance, worlds_of(kTwoAndTwo, {4}), case_name);
INSTANTIATE_TEST_SUITE_P(TwoAndTwoUcx, CollectivesConformance, worlds_of(kTwoAndTwo, {4}),
                         case_name);

INSTANTIATE_TEST_SUITE_P(ThreeAndOneUcx, TransportConformance, worlds_of(kThreeAndOne, {4}),
                         case_name);
INSTANTIATE_TEST_SUITE_P(ThreeAndOneUcx, MailboxConformance, worlds_of(kThreeAndOne, {4}),
                         case_name);
INSTANTIATE_TEST_SUITE_P(ThreeAndOneUcx, CollectivesConformance, worlds_of(kThreeAndOne, {4}),
                         case_name);

}  // namespace
}  // namespace plait::conformance
