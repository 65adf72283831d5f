// PLAIT_CHECK refuses a caller's mistake with one sentence made of its parts:
//
//   PLAIT_CHECK(slot < slots, "post: slot ", slot, " but the mailbox has ", slots);
#pragma once

#include <sstream>
#include <string>

#include "plait/error.h"

namespace plait::base {

template <class... Parts>
std::string sentence(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return std::move(text).str();
}

template <class... Parts>
[[noreturn, gnu::cold]] void fail(Code code, const Parts&... parts) {
  throw Error(code, sentence(parts...));
}

// Throws Error{system}: `what`, then the reason that errno gives.
[[noreturn, gnu::cold]] void fail_errno(const std::string& what);

}  // namespace plait::base

#define PLAIT_CHECK(condition, ...)                                      \
  do {                                                                   \
    if (!(condition)) [[unlikely]]                                       \
      ::plait::base::fail(::plait::Code::invalid_argument, __VA_ARGS__); \
  } while (false)
