// UNIX sockets without a file: their names live in the kernel and go with their owner, so that
// nothing stale is ever found and nothing is left behind. Since such a name has no permissions,
// both sides look at who is on the other one.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"

namespace plait::base {

// Null where another process already listens under this name.
std::optional<Fd> listen_at(const std::string& name);

// Null where nobody listens (yet).
std::optional<Fd> connect_to(const std::string& name);

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

enum class Delivery { done, not_yet, closed };

inline constexpr std::size_t kLongestMessage = 64 * 1024;

// Neither waits: not_yet where the socket is full, or empty. A descriptor that this process has no
// room for is an Error{system}, and the message is lost.
Delivery send_message(const Fd& socket, const std::string& bytes, const Fd& fd);
Delivery receive_message(const Fd& socket, Message& message);

// Waits until one of the sockets can be read (or written), at most `longest`.
void wait_readable(const std::vector<const Fd*>& sockets, Nanoseconds longest);
void wait_writable(const Fd& socket, Nanoseconds longest);

}  // namespace plait::base
