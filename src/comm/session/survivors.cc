// The agreement of the ranks that are left when a group has failed (docs/design/0018).
#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/fingerprint.h"
#include "base/text.h"
#include "comm/core/interruption.h"
#include "comm/session/state.h"

namespace plait {
namespace {

using comm::Nanoseconds;
using comm::Regrouping;
using Parts = Regrouping::Parts;

constexpr char kMade = '+';
constexpr char kFailed = '-';

// A member that makes the new group may wait for others several times before it says whether it
// has.
constexpr int kWaitsOfMaking = 4;

std::vector<int> members_in(const Parts& parts) {
  std::vector<int> members;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    if (parts[rank]) members.push_back(static_cast<int>(rank));
  }
  return members;
}

std::vector<int> absent_in(const Parts& parts) {
  std::vector<int> absent;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    if (!parts[rank]) absent.push_back(static_cast<int>(rank));
  }
  return absent;
}

std::uint64_t least_number_in(const Parts& parts) {
  std::uint64_t least = UINT64_MAX;
  for (const auto& part : parts) {
    const auto number = part ? base::parse_int(*part) : std::nullopt;
    if (number) least = std::min(least, static_cast<std::uint64_t>(*number));
  }
  return least;
}

// Tells one list of members from another.
std::string seal_of(const std::vector<int>& members) {
  return std::to_string(base::fingerprint(members));
}

// One try to make a group of certain members. All of them come to the same conclusions, because
// they see the same texts.
class Round {
 public:
  Round(Regrouping& regrouping, std::vector<int> members, Nanoseconds patience)
      : regrouping_(regrouping),
        members_(std::move(members)),
        seal_(kMade + seal_of(members_) + ' '),
        patience_(patience) {}

  // The exchange of a transport that makes the group.
  std::vector<std::string> exchange(const std::string& mine) {
    const Parts parts = bring(seal_ + mine, patience_);
    std::vector<std::string> texts;
    for (const int member : members_) {
      const auto& part = parts[member];
      if (is_good_ && part) texts.push_back(part->substr(seal_.size()));
    }
    if (!is_good_) base::fail(Code::peer_lost, "survivors: a rank is lost or has given up");
    return texts;
  }

  // This rank has or has not made the group. True: all members have.
  bool conclude(const std::string& failure) {
    const std::string mine = failure.empty() ? seal_ : failure;
    if (!has_exchanged_) bring(mine, patience_);
    if (is_good_) bring(mine, kWaitsOfMaking * patience_);
    return is_good_;
  }

  const std::vector<int>& members() const { return members_; }

  // The failure that a member has told, if no member is known to be lost.
  const std::string& failure() const { return failure_; }

 private:
  Parts bring(const std::string& mine, Nanoseconds patience) {
    has_exchanged_ = true;
    Parts parts = regrouping_.agree(mine, patience);
    bool all_there = true;
    for (const int member : members_) {
      const auto& part = parts[member];
      all_there = all_there && part.has_value();
      const bool is_good = part && part->starts_with(seal_);
      is_good_ = is_good_ && is_good;
      if (part && !is_good && failure_.empty())
        failure_ = base::sentence("rank ", member, ": ", part->substr(1));
    }
    if (!all_there) failure_.clear();
    return parts;
  }

  Regrouping& regrouping_;
  std::vector<int> members_;
  std::string seal_;
  Nanoseconds patience_;
  bool has_exchanged_ = false;
  bool is_good_ = true;
  std::string failure_;
};

std::string failure_text(const std::exception& error) {
  std::string text = kFailed + std::string(error.what());
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.substr(0, Regrouping::kMostBytes);
}

}  // namespace

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
  const auto make = [&](Round& round) -> std::unique_ptr<State> {
    failure.clear();
    try {
      return regroup(round.members(),
                     [&](const std::string& mine) { return round.exchange(mine); });
    } catch (const std::exception& error) {
      if (interruption.has_come()) throw;
      failure = failure_text(error);
      return nullptr;
    }
  };

  std::vector<int> failed_members;
  std::string reason;
  for (;;) {
    const Parts here = regrouping.agree(std::to_string(completed_calls()), policy.timeout);
    const std::vector<int> members = members_in(here);
    if (members == failed_members)
      base::fail(Code::system, "survivors: the new group can't be made: ", reason);
    Round round(regrouping, members, policy.connect_timeout);
    std::unique_ptr<State> made = make(round);
    if (round.conclude(failure)) {
      made->set_timeout(policy.timeout);
      return {.state = std::move(made),
              .lost = absent_in(here),
              .completed_calls = least_number_in(here)};
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
