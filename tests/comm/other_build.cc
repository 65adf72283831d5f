// In place of src/comm's own: makes what it is linked into another build of plait.
#include "comm/core/build_name.h"

namespace plait::comm {

std::string_view build_name() { return "0.0.9+0123456789ab"; }

}  // namespace plait::comm
