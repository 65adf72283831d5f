#include "cli/verify/rounds.h"

#include <exception>
#include <memory>

#include "cli/verify/case.h"
#include "cli/verify/check.h"
#include "cli/verify/layer_case.h"
#include "cli/verify/layer_check.h"
#include "plait/collectives.h"

namespace plait::cli {
namespace {

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

std::string problem(const Rounds& rounds, std::int64_t number, int world) {
  if (rounds.layers) return describe(random_layer_case(rounds.seed, number, world));
  return describe(random_case(rounds.seed, number, world, rounds.ops));
}

}  // namespace

Tally run_rounds(const Rounds& rounds, Communicator& comm, const RoundsHooks& hooks) {
  Tally tally;
  std::unique_ptr<Communicator> group;
  std::size_t first = 0;  // of the group's cases
  for (std::size_t i = 0; i < rounds.numbers.size(); ++i) {
    const std::int64_t number = rounds.numbers[i];
    if (i % kCasesPerGroup == 0) first = i;
    const auto company = std::span(rounds.numbers).subspan(first, i + 1 - first);
    hooks.begin(company, tally);
    try {
      if (i == first) {
        group.reset();
        group = std::make_unique<Communicator>(comm.with_link(random_link(rounds.seed, number)));
      }
      const std::string failure = failure_of(rounds, number, *group);
      if (!failure.empty()) hooks.failure(company, failure);
      float failed = failure.empty() ? 0.0F : 1.0F;
      all_reduce({&failed, 1}, comm);
      (failed > 0 ? tally.failed : tally.passed) += 1;
    } catch (const std::exception& error) {
      hooks.failure(company, problem(rounds, number, comm.world()) + ": " + error.what());
      tally.failed += 1;
      tally.ended = true;
      return tally;
    }
    hooks.progress(tally.passed + tally.failed);
  }
  return tally;
}

}  // namespace plait::cli
