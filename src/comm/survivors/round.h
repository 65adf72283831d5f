// The conclusions that survivors draw from the texts of their agreements. All of them draw the
// same, because they see the same texts.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "base/clock.h"
#include "comm/survivors/regrouping.h"

namespace plait::comm {

// The ranks that take part and those that don't, and the least of the numbers that were brought.
std::vector<int> members_in(const Regrouping::Parts& parts);
std::vector<int> absent_in(const Regrouping::Parts& parts);
std::uint64_t least_number_in(const Regrouping::Parts& parts);

// One try to make a group of certain members.
class Round {
 public:
  Round(Regrouping& regrouping, std::vector<int> members, base::Nanoseconds patience);

  // The exchange of a transport that makes the group.
  std::vector<std::string> exchange(const std::string& mine);

  // This rank has or has not made the group. True: all members have.
  bool conclude(const std::string& failure);

  const std::vector<int>& members() const { return members_; }

  // The failure that a member has told, if no member is known to be lost.
  const std::string& failure() const { return failure_; }

 private:
  Regrouping::Parts bring(const std::string& mine, base::Nanoseconds patience);

  Regrouping& regrouping_;
  std::vector<int> members_;
  std::string seal_;
  base::Nanoseconds patience_;
  bool has_exchanged_ = false;
  bool is_good_ = true;
  std::string failure_;
};

// The text of a member that could not make the group.
std::string failure_text(const std::exception& error);

}  // namespace plait::comm
