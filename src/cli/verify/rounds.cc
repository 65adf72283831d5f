#include "cli/verify/rounds.h"

#include <memory>

#include "cli/verify/case.h"
#include "cli/verify/check.h"
#include "cli/verify/layer_case.h"
#include "cli/verify/layer_check.h"
#include "plait/collectives.h"

namespace plait::cli {
namespace {

// So many cases share a group, and with it mailboxes and what was prepared; then there is a new
// one, over another link.
constexpr std::int64_t kCasesPerGroup = 12;

// With the problem's description; empty: nothing is wrong.
template <class Case>
std::string described(const Case& one, Communicator& comm) {
  const std::string failure = failure_of(one, comm);
  return failure.empty() ? failure : describe(one) + ": " + failure;
}

std::string failure_of(const Rounds& rounds, std::int64_t number, Communicator& comm) {
  if (rounds.layers) return described(random_layer_case(rounds.seed, number, comm.world()), comm);
  return described(random_case(rounds.seed, number, comm.world(), rounds.ops), comm);
}

}  // namespace

Tally run_rounds(const Rounds& rounds, Communicator& comm, const RoundsHooks& hooks) {
  Tally tally;
  std::unique_ptr<Communicator> group;
  std::int64_t block = -1;
  for (const std::int64_t number : rounds.numbers) {
    if (number / kCasesPerGroup != block) {
      block = number / kCasesPerGroup;
      group.reset();
      group = std::make_unique<Communicator>(comm.with_link(random_link(rounds.seed, block)));
    }
    const std::string failure = failure_of(rounds, number, *group);
    if (!failure.empty()) hooks.failure(number, failure);
    float failed = failure.empty() ? 0.0F : 1.0F;
    all_reduce({&failed, 1}, comm);
    (failed > 0 ? tally.failed : tally.passed) += 1;
    hooks.progress(tally.passed + tally.failed);
  }
  return tally;
}

}  // namespace plait::cli
