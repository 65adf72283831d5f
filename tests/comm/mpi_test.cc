// Started by mpirun: every process runs every test, as its own rank of a group of them all.
// Behaviour is defined in conformance/; this runs its suites over this transport.
#include <cstdlib>

#include "conformance/collectives.h"
#include "conformance/mailbox.h"
#include "conformance/transport.h"

namespace plait::conformance {
namespace {

const RankMaker kMpi = {.name = "mpi", .run = run_under_mpi, .sees_calls = false};
const RankMaker kLinked = {
    .name = "linked_mpi", .run = run_under_mpi, .link = "10gbit,20us", .sees_calls = false};

std::vector<int> started_world() { return {place_from_environment().world}; }

INSTANTIATE_TEST_SUITE_P(Mpi, TransportConformance, worlds_of(kMpi, started_world()), case_name);
INSTANTIATE_TEST_SUITE_P(Mpi, MailboxConformance, worlds_of(kMpi, started_world()), case_name);
INSTANTIATE_TEST_SUITE_P(Mpi, CollectivesConformance, worlds_of(kMpi, started_world()), case_name);
INSTANTIATE_TEST_SUITE_P(Mpi, RootsConformance, worlds_of(kMpi, started_world()), case_name);
INSTANTIATE_TEST_SUITE_P(Mpi, SeveralGroupsConformance, worlds_of(kMpi, started_world()),
                         case_name);
INSTANTIATE_TEST_SUITE_P(LinkedMpi, TransportConformance, worlds_of(kLinked, started_world()),
                         case_name);
INSTANTIATE_TEST_SUITE_P(LinkedMpi, MailboxConformance, worlds_of(kLinked, started_world()),
                         case_name);
INSTANTIATE_TEST_SUITE_P(LinkedMpi, CollectivesConformance, worlds_of(kLinked, started_world()),
                         case_name);

}  // namespace
}  // namespace plait::conformance
