// Everything that plait info finds, as one record.
#pragma once

#include "cli/info/show.h"

namespace plait::cli {

// Later versions may add keys; existing keys keep their meaning.
Json find_out();

}  // namespace plait::cli
