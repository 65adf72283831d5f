// Makes all ranks refuse what one rank refuses, so that no rank waits for one that has stopped.
#pragma once

#include <optional>

#include "base/function_ref.h"
#include "plait/communicator.h"
#include "plait/error.h"

namespace plait::measure {

// Collective. nullopt if no rank's check throws an Error. Otherwise the first rank whose check
// throws rethrows it, and the others return its code, so the error is reported once.
std::optional<Code> refusal_of_all(Communicator& comm, base::FunctionRef<void()> check);

}  // namespace plait::measure
