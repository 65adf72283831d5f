#include "base/check.h"

#include <cerrno>
#include <system_error>

namespace plait::base {

void fail_errno(const std::string& what) {
  const int reason = errno;
  fail(Code::system, what, ": ", std::generic_category().message(reason));
}

}  // namespace plait::base
