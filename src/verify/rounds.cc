#include "verify/rounds.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>

#include "comm/state.h"
#include "plait/collectives.h"
#include "verify/case.h"
#include "verify/check.h"
#include "verify/layer_case.h"
#include "verify/layer_check.h"

namespace plait::verify {
namespace {

// The failure with the problem's description; empty: none.
template <class Case>
std::string described(const Case& one, Communicator& comm) {
  const std::string failure = failure_of(one, comm);
  return failure.empty() ? failure : describe(one) + ": " + failure;
}

std::string failure_of(const Rounds& rounds, std::int64_t number, Communicator& comm) {
  if (rounds.layers) return described(random_layer_case(rounds.seed, number, comm.world()), comm);
  return described(random_case(rounds.seed, number, comm.world(), rounds.ops), comm);
}

bool is_as_on_one_rank(const Rounds& rounds, std::int64_t number, int world) {
  if (rounds.layers) return is_as_on_one_rank(random_layer_case(rounds.seed, number, world));
  return is_as_on_one_rank(random_case(rounds.seed, number, world, rounds.ops));
}

std::string problem(const Rounds& rounds, std::int64_t number, int world) {
  if (rounds.layers) return describe(random_layer_case(rounds.seed, number, world));
  return describe(random_case(rounds.seed, number, world, rounds.ops));
}

// Whether this rank found a failure and no rank before it did, and whether any rank did.
struct Finding {
  bool speaks = false;
  bool any = false;
};

Finding find_first(bool mine, Communicator& comm) {
  const auto own = static_cast<std::int8_t>(mine);
  std::vector<std::int8_t> all(static_cast<std::size_t>(comm.world()));
  all_gather({&own, 1, Dtype::s8}, {all.data(), all.size(), Dtype::s8}, comm);
  const auto first = std::find(all.begin(), all.end(), 1);
  return {.speaks = first - all.begin() == comm.rank(), .any = first != all.end()};
}

}  // namespace

Tally run_rounds(const Rounds& rounds, Communicator& comm, const RoundsHooks& hooks) {
  Tally tally;
  std::unique_ptr<Communicator> group;
  std::vector<std::int64_t> company;  // the cases of the group up to this one
  for (std::int64_t i = 0; i < rounds.numbers.size(); ++i) {
    const std::int64_t number = rounds.numbers[i];
    if (i % kCasesPerGroup == 0) company.clear();
    company.push_back(number);
    hooks.begin(company, tally);
    try {
      if (company.size() == 1) {
        group.reset();
        // Links are emulated within one host only.
        const bool may_have_link = comm.state().hosts() == 1;
        group = std::make_unique<Communicator>(
            comm.with_link(may_have_link ? random_link(rounds.seed, number) : std::nullopt));
      }
      const std::string failure = failure_of(rounds, number, *group);
      const Finding found = find_first(!failure.empty(), comm);
      if (found.speaks) hooks.failure(company, failure);
      (found.any ? tally.failed : tally.passed) += 1;
      if (!found.any && is_as_on_one_rank(rounds, number, comm.world())) tally.as_one += 1;
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

}  // namespace plait::verify
