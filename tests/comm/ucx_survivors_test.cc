// The tests of survivors_test.cc over UCX.
#include "comm/survivors.h"

namespace plait {
namespace {

const RankMaker kOverUcx = {.name = "ucx", .run = run_over_ucx, .sees_calls = false};

INSTANTIATE_TEST_SUITE_P(Ucx, Processes, worlds_of(kOverUcx, {3, 4}), case_name);

}  // namespace
}  // namespace plait
