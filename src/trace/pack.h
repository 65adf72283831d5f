// Converts a rank's records to bytes and back. All hosts must have the same byte order.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "trace/record.h"

namespace plait::trace {

std::vector<std::byte> pack(const RankRecords& all);

// Throws Error{invalid_argument} for bytes that pack() did not make.
RankRecords unpack(std::span<const std::byte> bytes);

// Writes the checksum of all bytes except the last eight into those eight.
void seal(std::span<std::byte> bytes);

}  // namespace plait::trace
