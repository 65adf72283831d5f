// Random operators and layers give the right bits in every schedule, in worlds of threads.
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/sanitized.h"
#include "plait/communicator.h"
#include "plait/operator.h"
#include "verify/rounds.h"

namespace plait::verify {
namespace {

// The thread sanitizer's build has no command, and so no other random problems.
constexpr std::int64_t kCasesOfAWorld = kIsThreadSanitized ? 12 : kIsSanitized ? 6 : 20;

class Fuzz : public testing::TestWithParam<int> {
 protected:
  // Cases that the verb does not run by default.
  static void run(Rounds::Kind kind) {
    Rounds rounds = {
        .seed = 2026,
        .numbers = {.named = {}, .first = GetParam(), .step = 7, .end = 7 * kCasesOfAWorld},
        .ops = {},
        .kind = kind};
    for (int i = 0; i < kOperators; ++i) rounds.ops.push_back(static_cast<Operator>(i));
    run_in_threads(GetParam(), [&](Communicator& comm) {
      const Tally tally =
          run_rounds(rounds, comm,
                     {.progress = [](std::int64_t) {},
                      .begin = [](std::span<const std::int64_t>, const Tally&) {},
                      .failure =
                          [](std::span<const std::int64_t> numbers, const std::string& sentence) {
                            ADD_FAILURE() << "case " << numbers.back() << ": " << sentence;
                          }});
      EXPECT_EQ(tally.passed, rounds.numbers.size());
      EXPECT_EQ(tally.failed, 0);
    });
  }
};

TEST_P(Fuzz, Operators) { run(Rounds::Kind::operators); }
TEST_P(Fuzz, Layers) { run(Rounds::Kind::layers); }

INSTANTIATE_TEST_SUITE_P(Worlds, Fuzz, testing::Values(1, 2, 3, 4),
                         [](const auto& world) { return "Of" + std::to_string(world.param); });

}  // namespace
}  // namespace plait::verify
