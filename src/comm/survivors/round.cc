#include "comm/survivors/round.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/fingerprint.h"
#include "base/text.h"

namespace plait::comm {

using Parts = Regrouping::Parts;

namespace {

constexpr char kMade = '+';
constexpr char kFailed = '-';

// A member that makes the new group may wait for others several times before it says whether it
// has.
constexpr int kWaitsOfMaking = 4;

// Tells one list of members from another.
std::string seal_of(const std::vector<int>& members) {
  return std::to_string(base::fingerprint(members));
}

}  // namespace

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

Round::Round(Regrouping& regrouping, std::vector<int> members, base::Nanoseconds patience)
    : regrouping_(regrouping),
      members_(std::move(members)),
      seal_(kMade + seal_of(members_) + ' '),
      patience_(patience) {}

std::vector<std::string> Round::exchange(const std::string& mine) {
  const Parts parts = bring(seal_ + mine, patience_);
  std::vector<std::string> texts;
  for (const int member : members_) {
    const auto& part = parts[member];
    if (is_good_ && part) texts.push_back(part->substr(seal_.size()));
  }
  if (!is_good_) base::fail(Code::peer_lost, "survivors: a rank is lost or has given up");
  return texts;
}

bool Round::conclude(const std::string& failure) {
  const std::string mine = failure.empty() ? seal_ : failure;
  if (!has_exchanged_) bring(mine, patience_);
  if (is_good_) bring(mine, kWaitsOfMaking * patience_);
  return is_good_;
}

Parts Round::bring(const std::string& mine, base::Nanoseconds patience) {
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

std::string failure_text(const std::exception& error) {
  std::string text = kFailed + std::string(error.what());
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.substr(0, Regrouping::kMostBytes);
}

}  // namespace plait::comm
