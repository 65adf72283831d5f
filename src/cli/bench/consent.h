// What one rank refuses, all refuse: nobody goes on to wait for a rank that doesn't.
#pragma once

#include <optional>

#include "base/function_ref.h"
#include "plait/communicator.h"
#include "plait/error.h"

namespace plait::cli {

// Collective. nullopt where no rank's check throws an Error. Else the first rank whose check does
// throws it, and the others get its code: it is said once.
std::optional<Code> refusal_of_all(Communicator& comm, base::FunctionRef<void()> check);

}  // namespace plait::cli
