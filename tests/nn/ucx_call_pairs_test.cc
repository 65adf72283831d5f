// Behaviour is defined in conformance/; this runs its suite over this transport.
#include "conformance/call_pairs.h"

namespace plait::conformance {
namespace {

const RankMaker kUcx = {.name = "ucx", .run = run_over_ucx};
INSTANTIATE_TEST_SUITE_P(Ucx, CallPairsConformance, worlds_of(kUcx, {2, 3}), case_name);

}  // namespace
}  // namespace plait::conformance
