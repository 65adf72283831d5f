// Behaviour is defined in conformance/; this runs its suites over this transport.
#include "conformance/collectives.h"
#include "conformance/mailbox.h"
#include "conformance/transport.h"

namespace plait::conformance {

const RankMaker kTcp = {.name = "tcp", .run = run_over_tcp, .sees_calls = false};

INSTANTIATE_TEST_SUITE_P(Tcp, TransportConformance, worlds_of(kTcp, {1, 2, 3, 4}), case_name);
INSTANTIATE_TEST_SUITE_P(Tcp, MailboxConformance, worlds_of(kTcp, {1, 2, 3, 4}), case_name);
INSTANTIATE_TEST_SUITE_P(Tcp, CollectivesConformance, worlds_of(kTcp, {1, 2, 3, 4}), case_name);
INSTANTIATE_TEST_SUITE_P(Tcp, RootsConformance, worlds_of(kTcp, {2, 3}), case_name);
INSTANTIATE_TEST_SUITE_P(Tcp, SeveralGroupsConformance, worlds_of(kTcp, {2, 3, 4}), case_name);

const RankMaker kLinked = {
    .name = "linked_tcp", .run = run_over_tcp, .link = "10gbit,20us", .sees_calls = false};

INSTANTIATE_TEST_SUITE_P(LinkedTcp, MailboxConformance, worlds_of(kLinked, {2, 3}), case_name);
INSTANTIATE_TEST_SUITE_P(LinkedTcp, CollectivesConformance, worlds_of(kLinked, {2, 3}), case_name);

}  // namespace plait::conformance
