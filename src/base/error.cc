#include "plait/error.h"

namespace plait {

std::string_view name(Code code) {
  switch (code) {
    case Code::invalid_argument:
      return "invalid_argument";
    case Code::mismatch:
      return "mismatch";
    case Code::peer_lost:
      return "peer_lost";
    case Code::timeout:
      return "timeout";
    case Code::system:
      return "system";
  }
  return "unknown";
}

namespace {

// The sentence may repeat a name that the caller gave, and what() ends at the first zero.
std::string with_zeros_shown(const std::string& sentence) {
  std::string shown;
  for (const char c : sentence) {
    if (c == '\0') {
      shown += "\\0";
    } else {
      shown += c;
    }
  }
  return shown;
}

}  // namespace

Error::Error(Code code, const std::string& sentence, int culprit)
    : std::runtime_error(with_zeros_shown(sentence)), code_(code), culprit_(culprit) {}

// It is defined here so that the type's identity lives in one library, and a plugin's Error can be
// caught by the program.
Error::~Error() = default;

}  // namespace plait
