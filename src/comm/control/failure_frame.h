// The frame that tells a rank that the group has failed. A rank that still connects to the others
// sends it, and polls for it too. The rank at the other end may be further, and has its group read
// it.
#pragma once

#include <optional>
#include <string>

#include "base/fd.h"
#include "comm/core/group.h"

namespace plait::comm::tcp {

// A failure as text: "1 3 all_reduce: rank 0 waits ...", with its code and its culprit.
std::string write(const Failure& failure);
std::optional<Failure> read_failure(const std::string& text);

// To the first group of the process at the other end. Nothing else may have been sent to that group
// before, so the kernel has room for it.
void send_failure(const base::Fd& socket, const Failure& failure);

// Searches what has come for that frame. All stays in the socket, for the group to read.
std::optional<Failure> find_failure(const base::Fd& socket);

}  // namespace plait::comm::tcp
