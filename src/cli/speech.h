// What a verb says: its answer on standard output, which must arrive, and what is wrong on standard
// error, which may not.
#pragma once

#include <string_view>

namespace plait::cli {

// Throws an Error where standard output does not take all of it.
void answer(std::string_view text);

// "plait run: sentence". Never throws, and never waits long: what went wrong went wrong all the
// same where nobody listens, and the exit status says so.
void complain(std::string_view speaker, std::string_view sentence) noexcept;

}  // namespace plait::cli
