// Behaviour is defined in conformance/; this runs its suite over the transports of processes and
// threads.
#include "conformance/call_pairs.h"

namespace plait::conformance {
namespace {

const RankMaker kThreads = {.name = "threads", .run = run_as_threads};
INSTANTIATE_TEST_SUITE_P(Threads, CallPairsConformance, worlds_of(kThreads, {2, 3}), case_name);

#ifdef __SANITIZE_THREAD__
const RankMaker kTcp = {.name = "tcp", .run = run_threads_over_tcp};
INSTANTIATE_TEST_SUITE_P(Tcp, CallPairsConformance, worlds_of(kTcp, {2, 3}), case_name);
#else
const RankMaker kShm = {.name = "shm", .run = run_in_processes};
const RankMaker kTcp = {.name = "tcp", .run = run_over_tcp};
const RankMaker kMixed = {.name = "mixed", .run = over_hosts({0, 0, 1}), .one_host = false};
INSTANTIATE_TEST_SUITE_P(Shm, CallPairsConformance, worlds_of(kShm, {2, 3}), case_name);
INSTANTIATE_TEST_SUITE_P(Tcp, CallPairsConformance, worlds_of(kTcp, {2, 3}), case_name);
INSTANTIATE_TEST_SUITE_P(Mixed, CallPairsConformance, worlds_of(kMixed, {3}), case_name);
#endif

}  // namespace
}  // namespace plait::conformance
