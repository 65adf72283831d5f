// The output of a verb: its answer on standard output, which must be delivered, and messages on
// standard error, which need not be.
#pragma once

#include <string_view>

namespace plait::cli {

// Throws an Error if standard output does not take all of it.
void answer(std::string_view text);

// Returns true if an answer failed because its reader has ended, as `head` does after lines. This
// is for ranks and others that ignore SIGPIPE, which else ends the process.
bool has_lost_reader();

// Writes "plait run: sentence". Never throws and never waits long: the exit status reports the
// error even if the message is not read.
void complain(std::string_view speaker, std::string_view sentence) noexcept;

}  // namespace plait::cli
