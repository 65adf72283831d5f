// UNIX sockets. A name that begins with '/' is a path: it has its folder's permissions, and its
// file stays until it is removed. Any other name lives in the kernel and goes with its owner, so
// that nothing stale is ever found; since it has no permissions, both sides look at who is on the
// other one. Children that this process forks have none of these sockets, nor what came through
// them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"

namespace plait::base {

inline constexpr std::size_t kLongestSocketName = 107;

// Null where the name is taken.
std::optional<Fd> listen_at(const std::string& name);

// Null where nobody listens (yet).
std::optional<Fd> connect_to(const std::string& name);

// Whether the file is there, and no process listens behind it.
bool is_abandoned(const std::string& path);

// Null where nobody is waiting to be accepted. Throws where somebody is but can't be, such as for
// want of descriptors.
std::optional<Fd> accept_from(const Fd& listener);

struct Credentials {
  pid_t pid;
  uid_t uid;
};
Credentials credentials_of(const Fd& socket);

// One message: some bytes and at most one descriptor.
struct Message {
  std::string bytes;
  Fd fd;
};

enum class Delivery { done, not_yet, too_many_on_their_way, closed };

inline constexpr std::size_t kLongestMessage = 64 * 1024;

// Neither waits: not_yet where the socket is full, or empty; too_many_on_their_way where the user
// may have no more descriptors in messages that have not been received. A descriptor that this
// process has no room for is an Error{system}, and the message is lost.
Delivery send_message(const Fd& socket, const std::string& bytes, const Fd& fd);
Delivery receive_message(const Fd& socket, Message& message);

// Waits until one of the sockets can be read (or written), at most `longest`.
void wait_readable(const std::vector<const Fd*>& sockets, Nanoseconds longest);
void wait_writable(const Fd& socket, Nanoseconds longest);

}  // namespace plait::base
