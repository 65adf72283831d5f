// SHA-256 (FIPS 180-4) and HMAC (RFC 2104) of it, with which two sides that know the same key prove
// that to each other. No branch and no address depends on the key or the text.
#pragma once

#include <string>
#include <string_view>

namespace plait::base {

// 32 bytes each.
std::string sha256(std::string_view text);
std::string hmac_sha256(std::string_view key, std::string_view text);

// Takes the same time wherever the texts differ, so that a caller can't guess one byte after the
// other. Texts of different lengths differ.
bool are_equal_in_constant_time(std::string_view one, std::string_view other);

}  // namespace plait::base
