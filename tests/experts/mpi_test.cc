// Started by mpirun. The test is in over_transports.cc.
#include "experts/over_transports.h"

namespace plait {
namespace {

const RankMaker kMpi = {.name = "mpi", .run = run_under_mpi};
INSTANTIATE_TEST_SUITE_P(Mpi, ExpertsOver, worlds_of(kMpi, {place_from_environment().world}),
                         case_name);

}  // namespace
}  // namespace plait
