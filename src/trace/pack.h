// A rank's records as bytes that travel to another rank, and back. Hosts of one byte order only.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "trace/record.h"

namespace plait::trace {

std::vector<std::byte> pack(const RankRecords& all);

// Throws Error{invalid_argument} for anything but the very bytes that pack() made.
RankRecords unpack(std::span<const std::byte> bytes);

// Puts the checksum of all bytes before them into the last eight.
void seal(std::span<std::byte> bytes);

}  // namespace plait::trace
