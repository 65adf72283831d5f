#include "verify/rounds.h"

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <variant>

#include "base/fingerprint.h"
#include "comm/session/gather.h"
#include "comm/session/state.h"
#include "verify/check.h"

namespace plait::verify {
namespace {

using Case = std::variant<VerifyCase, LayerCase, UlyssesCase, ExpertsCase, HeadsCase>;

Case case_of(const Rounds& rounds, std::int64_t number, int world) {
  switch (rounds.kind) {
    case Rounds::Kind::layers:
      return random_layer_case(rounds.seed, number, world);
    case Rounds::Kind::ulysses:
      return random_ulysses_case(rounds.seed, number, world);
    case Rounds::Kind::experts:
      return random_experts_case(rounds.seed, number, world);
    case Rounds::Kind::heads:
      return random_heads_case(rounds.seed, number, world);
    default:
      return random_case(rounds.seed, number, world, rounds.ops);
  }
}

std::string description_of(const Case& some) {
  return std::visit([](const auto& one) { return describe(one) + ": "; }, some);
}

Findings verify_case(const Case& some, Communicator& comm) {
  return std::visit([&](const auto& one) { return subject_of(one, comm)->check({}); }, some);
}

// The joint result of all ranks.
struct Verdict {
  bool speaks = false;  // this rank has failed, and no rank before it
  bool failed = false;
  bool as_one = false;
  std::uint64_t digest = 0;
};

Verdict verdict_of(const Findings& mine, Communicator& comm) {
  struct Flags {
    std::int8_t failed;
    std::int8_t as_one;
    std::uint64_t digest;
  };
  const Flags own = {.failed = mine.failure.empty() ? std::int8_t{0} : std::int8_t{1},
                     .as_one = mine.as_one ? std::int8_t{1} : std::int8_t{0},
                     .digest = mine.digest};
  const std::vector<Flags> all = comm::gather_values(own, comm);
  const auto first =
      std::find_if(all.begin(), all.end(), [](const Flags& one) { return one.failed != 0; });
  std::vector<std::uint64_t> digests;
  digests.reserve(all.size());
  for (const Flags& one : all) digests.push_back(one.digest);
  return {.speaks = first - all.begin() == comm.rank(),
          .failed = first != all.end(),
          .as_one =
              std::any_of(all.begin(), all.end(), [](const Flags& one) { return one.as_one != 0; }),
          .digest = base::fingerprint(digests)};
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
    const Case problem = case_of(rounds, number, comm.world());
    try {
      if (company.size() == 1) {
        group.reset();
        // Links are emulated within one host only.
        const bool may_have_link = comm.state().hosts() == 1;
        group = std::make_unique<Communicator>(
            comm.with_link(may_have_link ? random_link(rounds.seed, number) : std::nullopt));
      }
      const Findings found = verify_case(problem, *group);
      const Verdict all = verdict_of(found, comm);
      if (all.speaks) hooks.failure(company, description_of(problem) + found.failure);
      (all.failed ? tally.failed : tally.passed) += 1;
      if (!all.failed && all.as_one) tally.as_one += 1;
      tally.digest += base::fingerprint(std::array{static_cast<std::uint64_t>(number), all.digest});
    } catch (const std::exception& error) {
      hooks.failure(company, description_of(problem) + error.what());
      tally.failed += 1;
      tally.ended = true;
      return tally;
    }
    hooks.progress(tally.passed + tally.failed);
  }
  return tally;
}

}  // namespace plait::verify
