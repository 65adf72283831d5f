#include "quant/format_conformance.h"

namespace plait::quant {
namespace {

TEST(S8, RoundTrips) { expect_round_trips(kS8); }

TEST(S8, PartsStandAlone) { expect_parts_stand_alone(kS8); }

TEST(S8, KeepsAValueAByte) { EXPECT_EQ(kS8.row_bytes(7), 7); }

}  // namespace
}  // namespace plait::quant
