// The exception by which plait reports every failure, except for std::bad_alloc.
//
//   try {
//     plait::all_reduce(gradients, comm);
//   } catch (const plait::Error& error) {
//     if (error.code() == plait::Code::peer_lost) restart_without(error.culprit());
//     std::cerr << error.what() << '\n';   // one sentence: the operator, the ranks, the values
//   }
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "plait/export.h"

namespace plait {

enum class Code {
  invalid_argument,  // the caller's mistake; nothing was written
  mismatch,          // ranks disagree about the call they are in
  peer_lost,         // a rank died, left, or was told to abort
  timeout,           // a rank is alive but did not do its part before the deadline
  system,            // the operating system refused something; the sentence says what
};

PLAIT_EXPORT std::string_view name(Code code);

class PLAIT_EXPORT Error : public std::runtime_error {
 public:
  static constexpr int kNoRank = -1;

  Error(Code code, const std::string& sentence, int culprit = kNoRank);
  ~Error() override;

  Code code() const { return code_; }

  // The rank that is to blame, if there is one; kNoRank otherwise.
  int culprit() const { return culprit_; }

 private:
  Code code_;
  int culprit_;
};

}  // namespace plait
