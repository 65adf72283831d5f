// The agreement of the ranks that are left when a group has failed (docs/design/0018).
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/core/interruption.h"
#include "comm/session/state.h"
#include "comm/survivors/round.h"

namespace plait {

using Parts = comm::Regrouping::Parts;

// Refuses a group that has not failed, after it has polled its ranks.
comm::Regrouping& Communicator::State::usable_regrouping() {
  membership_.check_not_left();
  comm::Regrouping* regrouping = transport_->regrouping();
  PLAIT_CHECK(regrouping != nullptr, "survivors: ranks over ", transport_name_,
              " can't go on without a lost one, as its launcher ends them too; connect them by shm "
              "or tcp");
  PLAIT_CHECK(!has_gone_on_, "survivors: rank ", group().rank(),
              " has called it before, and its new communicator is the one to use");
  PLAIT_CHECK(!has_given_up_, "survivors: rank ", group().rank(),
              " has called it before, and the others may have gone on without it");
  const comm::Interruption interruption;
  try {
    group().examine(nullptr, [] { return false; });
  } catch (...) {
    if (interruption.has_come()) {
      give_up(*regrouping);
      throw;
    }
  }
  PLAIT_CHECK(group().failed(), "survivors: no rank of this group is lost");
  return *regrouping;
}

// The others don't wait for this rank any more, and take it for no rank of another group.
void Communicator::State::give_up(comm::Regrouping& regrouping) noexcept {
  has_given_up_ = true;
  regrouping.withdraw();
}

std::unique_ptr<Communicator::State> Communicator::State::regroup(
    const std::vector<int>& members, comm::Regrouping::Exchange exchange) {
  auto state = std::make_unique<State>(
      transport_name_, transport_->regrouping()->regroup(members, exchange), trace_);
  state->set_host(host_);
  const auto& link = mailboxes_.link();
  state->open(link ? std::optional(link->of(members)) : std::nullopt);
  return state;
}

Communicator::State::Regrouped Communicator::State::survivors() {
  const Use use(*this);
  comm::Regrouping& regrouping = usable_regrouping();
  try {
    Regrouped found = find_survivors(regrouping);
    has_gone_on_ = true;
    regrouping.conclude();
    return found;
  } catch (...) {
    give_up(regrouping);
    throw;
  }
}

Communicator::State::Regrouped Communicator::State::find_survivors(comm::Regrouping& regrouping) {
  const comm::WaitPolicy& policy = group().policy();
  const comm::Interruption interruption;

  // Null: a member could not make its part.
  std::string failure;
  const auto make = [&](comm::Round& round) -> std::unique_ptr<State> {
    failure.clear();
    try {
      return regroup(round.members(),
                     [&](const std::string& mine) { return round.exchange(mine); });
    } catch (const std::exception& error) {
      if (interruption.has_come()) throw;
      failure = comm::failure_text(error);
      return nullptr;
    }
  };

  std::vector<int> failed_members;
  std::string reason;
  for (;;) {
    const Parts here = regrouping.agree(std::to_string(completed_calls()), policy.timeout);
    const std::vector<int> members = comm::members_in(here);
    if (members == failed_members)
      base::fail(Code::system, "survivors: the new group can't be made: ", reason);
    comm::Round round(regrouping, members, policy.connect_timeout);
    std::unique_ptr<State> made = make(round);
    if (round.conclude(failure)) {
      made->set_timeout(policy.timeout);
      return {.state = std::move(made),
              .lost = comm::absent_in(here),
              .completed_calls = comm::least_number_in(here)};
    }
    if (made != nullptr) made->discard();
    failed_members = round.failure().empty() ? std::vector<int>() : members;
    reason = round.failure();
  }
}

// Its ranks go on in another group: that this one is left must not be taken for their end.
void Communicator::State::discard() noexcept {
  if (comm::Regrouping* regrouping = transport_->regrouping()) regrouping->conclude();
  group().fail({.code = Code::peer_lost,
                .culprit = Error::kNoRank,
                .sentence = "survivors: this group was given up while it was made"});
}

}  // namespace plait
