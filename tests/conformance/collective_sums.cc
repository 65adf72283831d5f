// Sums that are rounded to another dtype than their parts have.
#include <utility>

#include "conformance/collectives.h"
#include "conformance/contributions.h"
#include "plait/collectives.h"

namespace plait::conformance {

TEST_P(CollectivesConformance, SumsMayBeOfAnotherDtypeThanTheirParts) {
  run([&](Communicator& comm) {
    constexpr std::pair<Dtype, Dtype> kPairs[] = {{Dtype::f32, Dtype::bf16},
                                                  {Dtype::bf16, Dtype::f32},
                                                  {Dtype::f32, Dtype::f16},
                                                  {Dtype::f16, Dtype::bf16}};
    for (const auto& [in, out] : kPairs) {
      for (const std::size_t count : kSizes) {
        const auto mine = contribution(comm.rank(), count, in);
        const auto sum = sum_of_all(world(), count, in, out, 0);
        Guarded all(count, out);
        all_reduce({mine.data(), count, in}, {all.data(), count, out}, comm);
        EXPECT_TRUE(all.contents() == sum) << name(in) << " to " << name(out) << " " << count;
        const Shard shard = balanced_shard(count, comm.rank(), world());
        Guarded part(shard.count, out);
        reduce_scatter({mine.data(), count, in}, {part.data(), shard.count, out}, comm);
        EXPECT_TRUE(part.contents() == slice(sum, shard.offset, shard.count, out))
            << name(in) << " to " << name(out) << " " << count << " in shards";
      }
    }
  });
}

}  // namespace plait::conformance
