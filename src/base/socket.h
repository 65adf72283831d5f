// UNIX sockets. A name that begins with '/' is a path: the permissions of its folder apply, and its
// file stays until it is removed. Any other name lives in the kernel and ends with its owner, so no
// stale name is ever found. It has no permissions, so both sides check each other's credentials.
// Forked children inherit neither these sockets nor the descriptors received through them.
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

// Null if the name is taken.
std::optional<Fd> listen_at(const std::string& name);

// Null if no process listens, or none yet.
std::optional<Fd> connect_to(const std::string& name);

// True if no process listens there, though the file exists where the name is a path.
bool is_abandoned(const std::string& name);

// Null if no connection is waiting. Throws if one is waiting but can't be accepted, for instance
// for lack of descriptors.
std::optional<Fd> accept_from(const Fd& listener);

struct Credentials {
  pid_t pid;
  uid_t uid;
};
Credentials credentials_of(const Fd& socket);

// One message: bytes, and at most one descriptor.
struct Message {
  std::string bytes;
  Fd fd;
};

enum class Delivery { done, not_yet, too_many_on_their_way, closed };

inline constexpr std::size_t kLongestMessage = 64 * 1024;

// Neither function waits. not_yet: the socket is full, or empty. too_many_on_their_way: this user
// may have no more descriptors in messages that have not been received. If this process has too
// many open files to receive a descriptor, it is an Error{system}: the message's bytes are received
// all the same, and the descriptor is lost.
Delivery send_message(const Fd& socket, const std::string& bytes, const Fd& fd);
Delivery receive_message(const Fd& socket, Message& message);

// Waits until one of the sockets can be read (or written), at most for `longest`.
void wait_readable(const std::vector<const Fd*>& sockets, Nanoseconds longest);
void wait_writable(const Fd& socket, Nanoseconds longest);

}  // namespace plait::base
