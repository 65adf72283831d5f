#include "base/socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/check.h"
#include "base/close_on_fork.h"

namespace plait::base {
namespace {

struct Address {
  sockaddr_un name = {};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

static_assert(kLongestSocketName + 1 == sizeof(sockaddr_un::sun_path));

bool is_path(const std::string& name) { return name.starts_with('/'); }

std::string shown(const std::string& name) { return is_path(name) ? name : '@' + name; }

Address address_of(const std::string& name) {
  Address address;
  // One byte for the zero that marks an abstract name, or that ends a path.
  PLAIT_CHECK(name.size() <= kLongestSocketName, "the socket name \"", name, "\" is too long");
  address.name.sun_family = AF_UNIX;
  char* const begin = address.name.sun_path + (is_path(name) ? 0 : 1);
  std::copy(name.begin(), name.end(), begin);
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Fd make_socket() {
  Fd fd = CloseOnFork().adopt(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) fail_errno("cannot make a UNIX socket");
  return fd;
}

// Holds one descriptor sent along with a message, aligned as the kernel requires.
union Control {
  cmsghdr header;
  std::array<char, CMSG_SPACE(sizeof(int))> bytes;
};

Fd descriptor_in(msghdr& message, const CloseOnFork& closing) {
  Fd found;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(part), sizeof(fd));
    found = closing.adopt(fd);
  }
  return found;
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

Delivery why_nothing_came() {
  if (would_block()) return Delivery::not_yet;
  if (errno == ECONNRESET) return Delivery::closed;
  fail_errno("cannot receive a set-up message");
}

void poll_all(std::vector<pollfd>& watched, Nanoseconds longest) {
  const auto rounded_up = (std::max<Nanoseconds>(longest, 0) + kMillisecond - 1) / kMillisecond;
  ::poll(watched.data(), watched.size(), static_cast<int>(std::min<Nanoseconds>(rounded_up, 1000)));
}

}  // namespace

std::optional<Fd> listen_at(const std::string& name) {
  Fd fd = make_socket();
  const Address address = address_of(name);
  if (::bind(fd.get(), address.get(), address.length) != 0) {
    if (errno == EADDRINUSE) return std::nullopt;
    fail_errno("cannot bind the socket " + shown(name));
  }
  if (::listen(fd.get(), SOMAXCONN) != 0) fail_errno("cannot listen at the socket " + shown(name));
  return fd;
}

std::optional<Fd> connect_to(const std::string& name) {
  Fd fd = make_socket();
  const Address address = address_of(name);
  if (::connect(fd.get(), address.get(), address.length) == 0) return fd;
  // EAGAIN: the listener's queue of connections is full.
  if (errno == ECONNREFUSED || errno == ENOENT || would_block()) return std::nullopt;
  fail_errno("cannot connect to the socket " + shown(name));
}

bool is_abandoned(const std::string& name) {
  const Fd fd = make_socket();
  const Address address = address_of(name);
  return ::connect(fd.get(), address.get(), address.length) != 0 && errno == ECONNREFUSED;
}

std::optional<Fd> accept_from(const Fd& listener) {
  Fd fd = CloseOnFork().adopt(
      ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd) return fd;
  // ECONNABORTED: the caller has closed the connection already.
  if (would_block() || errno == ECONNABORTED) return std::nullopt;
  fail_errno("cannot accept a caller at a socket");
}

Credentials credentials_of(const Fd& socket) {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    fail_errno("cannot read the credentials of a socket's peer");
  }
  return {.pid = peer.pid, .uid = peer.uid};
}

Delivery send_message(const Fd& socket, const std::string& bytes, const Fd& fd) {
  PLAIT_CHECK(bytes.size() <= kLongestMessage, "a set-up message of ", bytes.size(),
              " bytes; at most ", kLongestMessage, " can be sent");
  iovec part = {.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  Control control = {};
  if (fd) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = control.bytes.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int raw = fd.get();
    std::memcpy(CMSG_DATA(header), &raw, sizeof(raw));
  }
  if (::sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return Delivery::done;
  if (would_block()) return Delivery::not_yet;
  // The descriptors of this user that have been sent but not received exceed the limit of open
  // files. Sending works again when receivers have taken theirs.
  if (errno == ETOOMANYREFS) return Delivery::too_many_on_their_way;
  if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN) return Delivery::closed;
  fail_errno("cannot send a set-up message");
}

Delivery receive_message(const Fd& socket, Message& received) {
  // Its length comes first, because most calls find no message, and to make memory for the longest
  // one takes far longer than to find that out.
  const auto look = [&] {
    return ::recv(socket.get(), nullptr, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
  };
  ssize_t length = look();
  // The other side closed with unread data from this one. The kernel reports it once, before it
  // delivers what the other side had sent.
  if (length < 0 && errno == ECONNRESET) length = look();
  // The kernel looks for a message first and then at the end, so what the other side sends and
  // closes between the two is reported as an end at first.
  if (length == 0) length = look();
  if (length < 0 && errno == ECONNRESET) length = look();
  if (length < 0) return why_nothing_came();
  std::string bytes(std::min(static_cast<std::size_t>(length), kLongestMessage), '\0');
  iovec part = {.iov_base = bytes.data(), .iov_len = bytes.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  Control control = {};
  message.msg_control = control.bytes.data();
  // The length excludes padding, in which a second descriptor would fit and be lost.
  message.msg_controllen = CMSG_LEN(sizeof(int));
  const CloseOnFork closing;
  const auto take = [&] {
    return ::recvmsg(socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  };
  length = take();
  if (length < 0 && errno == ECONNRESET) length = take();  // it has closed since
  if (length < 0) return why_nothing_came();
  received.fd = descriptor_in(message, closing);
  received.bytes = std::move(bytes);
  if (!received.fd && (message.msg_flags & MSG_CTRUNC) != 0) {
    errno = EMFILE;  // the kernel gives no reason, but drops a descriptor for nothing else
    fail_errno("cannot receive a descriptor with a set-up message");
  }
  // A message of plait is never empty, so an empty one is the end of the connection.
  if (length == 0) return Delivery::closed;
  return Delivery::done;
}

void wait_readable(const std::vector<const Fd*>& sockets, Nanoseconds longest) {
  std::vector<pollfd> watched;
  watched.reserve(sockets.size());
  for (const Fd* socket : sockets)
    watched.push_back({.fd = socket->get(), .events = POLLIN, .revents = 0});
  poll_all(watched, longest);
}

void wait_writable(const Fd& socket, Nanoseconds longest) {
  std::vector<pollfd> watched = {{.fd = socket.get(), .events = POLLOUT, .revents = 0}};
  poll_all(watched, longest);
}

}  // namespace plait::base
