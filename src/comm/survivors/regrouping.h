// The part of survivors() that a transport does when its group has failed (docs/design/0018).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/function_ref.h"

namespace plait::comm {

class Transport;

class Regrouping {
 public:
  Regrouping() = default;
  Regrouping(const Regrouping&) = delete;
  Regrouping& operator=(const Regrouping&) = delete;
  virtual ~Regrouping() = default;

  // The longest text that a rank may bring to an agreement. It has neither zeros nor line breaks.
  static constexpr std::size_t kMostBytes = 240;

  // Indexed by rank; nullopt: the rank takes no part, because it is lost.
  using Parts = std::vector<std::optional<std::string>>;

  // All ranks that are left call it the same number of times, and all get the same answer for the
  // same call. A rank that has not called it when another has waited for `patience` counts as lost:
  // its own call throws Error{timeout}.
  virtual Parts agree(const std::string& mine, base::Nanoseconds patience) = 0;

  // Indexed by member: the text of each.
  using Exchange = base::FunctionRef<std::vector<std::string>(const std::string& mine)>;

  // A transport for `members` (ranks here, in their order), all of which call it. Each calls
  // `exchange` at most once; what it throws is passed on. The transport's waits have the deadline
  // for connecting until set_timeout().
  virtual std::unique_ptr<Transport> regroup(const std::vector<int>& members,
                                             Exchange exchange) = 0;

  // This rank calls agree() no more: it has given up, or its new group is complete.
  virtual void withdraw() noexcept = 0;
  virtual void conclude() noexcept = 0;
};

// The errors of agree(): the others have given up this rank.
[[noreturn]] void refuse_given_up(int rank, base::Nanoseconds patience);

}  // namespace plait::comm
