#include "trace/record.h"

namespace plait::trace {

std::string_view name(Lane lane) {
  switch (lane) {
    case Lane::compute:
      return "compute";
    case Lane::comm:
      return "comm";
    case Lane::wait:
      return "wait";
  }
  return "unknown";
}

}  // namespace plait::trace
