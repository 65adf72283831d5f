// A profile of this machine, as far as it can be judged without measuring it again.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "conformance/ranks.h"
#include "plan/machine.h"
#include "tune/measure_profile.h"

namespace plait::tune {
namespace {

void expect_sane(const plan::MachineProfile& profile) {
  EXPECT_EQ(profile.machine, plan::machine_fingerprint());
  EXPECT_EQ(profile.threads, 1);
  std::set<std::string> kinds;
  double before = 0;
  for (const plan::ProductRate& rate : profile.products) {
    const bool same_kind = !kinds.insert(rate.kind).second;
    EXPECT_GE(rate.flops_per_ns, same_kind ? before : 0);
    before = rate.flops_per_ns;
    EXPECT_GT(rate.flops_per_ns, 0.001);
    EXPECT_LT(rate.flops_per_ns, 1e6);
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"bf16", "f32", "s4", "s8"}));
  EXPECT_GE(profile.beside, 1);
  EXPECT_GE(profile.uncertainty, 0.03);
  EXPECT_EQ(plan::text_of(plan::parse_profile(plan::text_of(profile))), plan::text_of(profile));
}

TEST(AProfile, HasEveryFigureAndIsTheSameOnAllRanks) {
  std::vector<std::string> texts(2);
  run_as_threads(2, [&](Communicator& comm) {
    int last = 0;
    int total = 0;
    const plan::MachineProfile profile = measure_profile(comm, {.threads = 1,
                                                                .side = 512,
                                                                .longest = 20 * base::kMillisecond,
                                                                .progress = [&](int done, int all) {
                                                                  EXPECT_EQ(done, last + 1);
                                                                  last = done;
                                                                  total = all;
                                                                }});
    EXPECT_EQ(last, total);
    EXPECT_EQ(profile.ranks, 2);
    ASSERT_EQ(profile.transports.size(), 1U);
    EXPECT_EQ(profile.transports[0].name, "threads");
    expect_sane(profile);
    texts[static_cast<std::size_t>(comm.rank())] = plan::text_of(profile);
  });
  EXPECT_EQ(texts[0], texts[1]);
}

}  // namespace
}  // namespace plait::tune
