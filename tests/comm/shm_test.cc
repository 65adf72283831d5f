// Behaviour is defined in conformance/; this runs its suites over this transport.
#include <vector>

#include "conformance/collectives.h"
#include "conformance/mailbox.h"
#include "conformance/transport.h"

namespace plait::conformance {

// Most worlds are either with a link or without. Two ranks, for which collectives have ways of
// their own, are both.
const std::vector<int> kWorlds = {1, 2, 3, 8};
const std::vector<int> kLinkedWorlds = {2, 5};

const RankMaker kShm = {.name = "shm", .run = run_in_processes};

INSTANTIATE_TEST_SUITE_P(Shm, TransportConformance, worlds_of(kShm, kWorlds), case_name);
INSTANTIATE_TEST_SUITE_P(Shm, MailboxConformance, worlds_of(kShm, kWorlds), case_name);
INSTANTIATE_TEST_SUITE_P(Shm, CollectivesConformance, worlds_of(kShm, kWorlds), case_name);
INSTANTIATE_TEST_SUITE_P(Shm, RootsConformance, worlds_of(kShm, {2, 3}), case_name);
INSTANTIATE_TEST_SUITE_P(Shm, SeveralGroupsConformance, worlds_of(kShm, {1, 2, 3, 4}), case_name);

const RankMaker kLinked = {.name = "linked_shm", .run = run_in_processes, .link = "10gbit,20us"};

INSTANTIATE_TEST_SUITE_P(LinkedShm, TransportConformance, worlds_of(kLinked, kLinkedWorlds),
                         case_name);
INSTANTIATE_TEST_SUITE_P(LinkedShm, MailboxConformance, worlds_of(kLinked, kLinkedWorlds),
                         case_name);
INSTANTIATE_TEST_SUITE_P(LinkedShm, CollectivesConformance, worlds_of(kLinked, kLinkedWorlds),
                         case_name);
INSTANTIATE_TEST_SUITE_P(LinkedShm, RootsConformance, worlds_of(kLinked, {2, 3}), case_name);
INSTANTIATE_TEST_SUITE_P(LinkedShm, SeveralGroupsConformance, worlds_of(kLinked, {2, 3}),
                         case_name);

}  // namespace plait::conformance
