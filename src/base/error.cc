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

Error::Error(Code code, const std::string& sentence, int culprit)
    : std::runtime_error(sentence), code_(code), culprit_(culprit) {}

// It is defined here so that the type's identity lives in one library, and a plugin's Error can be
// caught by the program.
Error::~Error() = default;

}  // namespace plait
