// Behaviour is defined in conformance/; this runs its suites over this transport.
#include <cstdlib>

#include "comm/ucx_case.h"
#include "conformance/collectives.h"
#include "conformance/mailbox.h"
#include "conformance/transport.h"

namespace plait::conformance {
namespace {

// The receiver asks for every chunk of more than 64 bytes when it knows where to put it.
void run_by_rendezvous(int world, const Body& body, const CommunicatorOptions& options) {
  ::setenv("UCX_RNDV_THRESH", "64", 1);
  run_over_ucx(world, body, options);
  ::unsetenv("UCX_RNDV_THRESH");
}

void run_through_shared_memory(int world, const Body& body, const CommunicatorOptions& options) {
  const Environment shared(through_shared_memory());
  run_over_ucx(world, body, options);
}

const RankMaker kUcx = {.name = "ucx", .run = run_over_ucx, .sees_calls = false};
const RankMaker kFetched = {.name = "fetched", .run = run_by_rendezvous, .sees_calls = false};
const RankMaker kRead = {.name = "read", .run = run_through_shared_memory, .sees_calls = false};
const RankMaker kLinked = {
    .name = "linked_ucx", .run = run_over_ucx, .link = "10gbit,20us", .sees_calls = false};

INSTANTIATE_TEST_SUITE_P(Ucx, TransportConformance, worlds_of(kUcx, {1, 2, 3, 4}), case_name);
INSTANTIATE_TEST_SUITE_P(Ucx, MailboxConformance, worlds_of(kUcx, {1, 2, 3, 4}), case_name);
INSTANTIATE_TEST_SUITE_P(Ucx, CollectivesConformance, worlds_of(kUcx, {1, 2, 3, 4}), case_name);
INSTANTIATE_TEST_SUITE_P(Ucx, RootsConformance, worlds_of(kUcx, {2, 3}), case_name);
INSTANTIATE_TEST_SUITE_P(Ucx, SeveralGroupsConformance, worlds_of(kUcx, {2, 3}), case_name);

INSTANTIATE_TEST_SUITE_P(FetchedUcx, TransportConformance, worlds_of(kFetched, {3}), case_name);
INSTANTIATE_TEST_SUITE_P(FetchedUcx, MailboxConformance, worlds_of(kFetched, {2, 3}), case_name);
INSTANTIATE_TEST_SUITE_P(FetchedUcx, CollectivesConformance, worlds_of(kFetched, {2, 3}),
                         case_name);

INSTANTIATE_TEST_SUITE_P(ReadUcx, TransportConformance, worlds_of(kRead, {3}), case_name);
INSTANTIATE_TEST_SUITE_P(ReadUcx, MailboxConformance, worlds_of(kRead, {2, 3, 4}), case_name);
INSTANTIATE_TEST_SUITE_P(ReadUcx, CollectivesConformance, worlds_of(kRead, {2, 4}), case_name);
INSTANTIATE_TEST_SUITE_P(ReadUcx, RootsConformance, worlds_of(kRead, {3}), case_name);

INSTANTIATE_TEST_SUITE_P(LinkedUcx, MailboxConformance, worlds_of(kLinked, {2}), case_name);
INSTANTIATE_TEST_SUITE_P(LinkedUcx, CollectivesConformance, worlds_of(kLinked, {2}), case_name);

}  // namespace
}  // namespace plait::conformance
