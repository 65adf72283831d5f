// The test is in over_transports.cc.
#include "experts/over_transports.h"

namespace plait {
namespace {

const RankMaker kUcx = {.name = "ucx", .run = run_over_ucx};
INSTANTIATE_TEST_SUITE_P(Ucx, ExpertsOver, worlds_of(kUcx, {2, 3}), case_name);

}  // namespace
}  // namespace plait
