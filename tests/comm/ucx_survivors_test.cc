// The tests of survivors_test.cc over UCX.
#include "comm/survivors.h"

namespace plait {
namespace {

const conformance::RankMaker kOverUcx = {
    .name = "ucx", .run = conformance::run_over_ucx, .sees_calls = false};

INSTANTIATE_TEST_SUITE_P(Ucx, Processes, conformance::worlds_of(kOverUcx, {3, 4}),
                         conformance::case_name);

}  // namespace
}  // namespace plait
