// Started by mpirun. Behaviour is defined in conformance/; this runs its suite over this transport.
#include "conformance/call_pairs.h"

namespace plait::conformance {
namespace {

const RankMaker kMpi = {.name = "mpi", .run = run_under_mpi};
INSTANTIATE_TEST_SUITE_P(Mpi, CallPairsConformance,
                         worlds_of(kMpi, {place_from_environment().world}), case_name);

}  // namespace
}  // namespace plait::conformance
