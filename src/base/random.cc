#include "base/random.h"

#include <sys/random.h>

#include <array>

#include "base/check.h"
#include "base/text.h"

namespace plait::base {

std::string random_name() {
  std::array<char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    fail_errno("cannot get random bytes");
  return to_hex({bytes.data(), bytes.size()});
}

}  // namespace plait::base
