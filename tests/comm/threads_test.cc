// Behaviour is defined in conformance/; this runs its suites over this transport.
#include <vector>

#include "conformance/collectives.h"
#include "conformance/mailbox.h"
#include "conformance/transport.h"

namespace plait::conformance {

#ifdef __SANITIZE_THREAD__
const std::vector<int> kWorlds = {1, 2, 3, 5};  // eight take a minute, and do nothing else
#else
const std::vector<int> kWorlds = {1, 2, 3, 5, 8};
#endif
const std::vector<int> kLinkedWorlds = {2, 3};  // a link makes chunks late, for any number of ranks

const RankMaker kThreads = {.name = "threads", .run = run_as_threads};

INSTANTIATE_TEST_SUITE_P(Threads, TransportConformance, worlds_of(kThreads, kWorlds), case_name);
INSTANTIATE_TEST_SUITE_P(Threads, MailboxConformance, worlds_of(kThreads, kWorlds), case_name);
INSTANTIATE_TEST_SUITE_P(Threads, CollectivesConformance, worlds_of(kThreads, kWorlds), case_name);
INSTANTIATE_TEST_SUITE_P(Threads, RootsConformance, worlds_of(kThreads, {2, 3}), case_name);
INSTANTIATE_TEST_SUITE_P(Threads, SeveralGroupsConformance, worlds_of(kThreads, {1, 2, 3, 4}),
                         case_name);

const RankMaker kLinked = {.name = "linked_threads", .run = run_as_threads, .link = "10gbit,20us"};

INSTANTIATE_TEST_SUITE_P(LinkedThreads, TransportConformance, worlds_of(kLinked, kLinkedWorlds),
                         case_name);
INSTANTIATE_TEST_SUITE_P(LinkedThreads, MailboxConformance, worlds_of(kLinked, kLinkedWorlds),
                         case_name);
INSTANTIATE_TEST_SUITE_P(LinkedThreads, CollectivesConformance, worlds_of(kLinked, kLinkedWorlds),
                         case_name);
INSTANTIATE_TEST_SUITE_P(LinkedThreads, RootsConformance, worlds_of(kLinked, {2, 3}), case_name);
INSTANTIATE_TEST_SUITE_P(LinkedThreads, SeveralGroupsConformance, worlds_of(kLinked, {2, 3}),
                         case_name);

}  // namespace plait::conformance
