#include "comm/control/address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "base/close_on_fork.h"
#include "base/env.h"
#include "comm/control/lookup.h"
#include "comm/control/ports.h"
#include "comm/control/rendezvous.h"

namespace plait::comm::tcp {
namespace {

constexpr int kFlags = SOCK_NONBLOCK | SOCK_CLOEXEC;

// How long the order of addresses is worth waiting for.
constexpr base::Nanoseconds kLongestLookup = 2 * base::kSecond;

// How long the kernel goes on sending to a host that doesn't answer: longer than PLAIT_LOST_AFTER.
constexpr base::Nanoseconds kUntilKernelEndsIt = 24 * 3600 * base::kSecond;

sockaddr* as_sockaddr(sockaddr_storage& bytes) { return reinterpret_cast<sockaddr*>(&bytes); }

void set(const base::Fd& socket, int level, int option, int value) {
  ::setsockopt(socket.get(), level, option, &value, sizeof(value));
}

void refuse_for_shortage(const char* what) {
  if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
    base::fail_errno(what);
}

std::optional<base::Fd> open_socket(int family) {
  const base::CloseOnFork closing;
  base::Fd socket = closing.adopt(::socket(family, SOCK_STREAM | kFlags, IPPROTO_TCP));
  if (socket) return socket;
  refuse_for_shortage("cannot open a TCP socket");
  return std::nullopt;
}

using Interfaces = std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)>;

Interfaces list_interfaces() {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) base::fail_errno("cannot list the addresses of this host");
  return {found, ::freeifaddrs};
}

// The interface's address, which is one of IPv4 or IPv6.
Address address_of(const ifaddrs& one) {
  Address address;
  address.length = one.ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&address.bytes, one.ifa_addr, address.length);
  return address;
}

bool is_usable(const ifaddrs& one, const std::optional<std::string>& wanted) {
  if (one.ifa_addr == nullptr || (one.ifa_flags & IFF_UP) == 0) return false;
  if (wanted && *wanted != one.ifa_name) return false;
  const int family = one.ifa_addr->sa_family;
  if (family == AF_INET) return true;
  if (family != AF_INET6) return false;
  // A link-local address means something only together with the caller's own interface.
  return !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(one.ifa_addr)->sin6_addr);
}

std::string end_of(const base::Fd& socket, decltype(&::getpeername) get) {
  Address address;
  address.length = sizeof(address.bytes);
  if (get(socket.get(), as_sockaddr(address.bytes), &address.length) != 0) return "?";
  return show_host(address);
}

// `result`: what getaddrinfo() returned.
std::vector<Address> find_addresses(const std::string& host, int port, int flags, int& result) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* found = nullptr;
  result = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (result != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  std::vector<Address> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    Address address;
    std::memcpy(&address.bytes, one->ai_addr, one->ai_addrlen);
    address.length = one->ai_addrlen;
    addresses.push_back(address);
  }
  return addresses;
}

// Asks the kernel's routes: no packet is sent where a datagram's socket is connected.
std::string source_toward(const std::string& host) {
  constexpr int kAnyPort = 9;
  const auto found = Lookup(host, kAnyPort).wait(base::now() + kLongestLookup);
  if (!found) return "";
  for (const Address& address : found->addresses) {
    const base::CloseOnFork closing;
    const base::Fd socket = closing.adopt(::socket(address.family(), SOCK_DGRAM | kFlags, 0));
    const auto* to = reinterpret_cast<const sockaddr*>(&address.bytes);
    if (socket && ::connect(socket.get(), to, address.length) == 0) return self_of(socket);
  }
  return "";
}

}  // namespace

bool Address::is_loopback() const {
  if (family() == AF_INET) {
    const auto* four = reinterpret_cast<const sockaddr_in*>(&bytes);
    return ntohl(four->sin_addr.s_addr) >> 24 == 127;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&bytes)->sin6_addr) != 0;
}

// An IPv4 address that came through an IPv6 socket is shown as IPv4.
std::string show_host(const Address& address) {
  std::array<char, NI_MAXHOST> host = {};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address.bytes), address.length, host.data(),
                    host.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "?";
  }
  const std::string text = host.data();
  constexpr std::string_view kMapped = "::ffff:";
  return text.starts_with(kMapped) ? text.substr(kMapped.size()) : text;
}

std::vector<Address> resolve(const std::string& host, int port, std::string& why) {
  int result = 0;
  auto addresses = find_addresses(host, port, 0, result);
  if (result != 0) why = ::gai_strerror(result);
  return addresses;
}

std::vector<Address> read_addresses(const std::string& host, int port) {
  int result = 0;
  return find_addresses(host, port, AI_NUMERICHOST, result);
}

std::vector<std::string> local_hosts(const std::string& toward) {
  const auto wanted = base::env("PLAIT_INTERFACE");
  const Interfaces interfaces = list_interfaces();
  std::vector<std::string> outer;
  std::vector<std::string> inner;
  for (const ifaddrs* one = interfaces.get(); one != nullptr; one = one->ifa_next) {
    if (!is_usable(*one, wanted)) continue;
    const Address address = address_of(*one);
    (address.is_loopback() ? inner : outer).push_back(show_host(address));
  }
  PLAIT_CHECK(!wanted || !outer.empty() || !inner.empty(), "PLAIT_INTERFACE=", *wanted,
              ": this host has no interface of this name with an address");
  const std::string first = toward.empty() || wanted ? "" : source_toward(toward);
  std::stable_partition(outer.begin(), outer.end(),
                        [&](const std::string& host) { return host == first; });
  outer.insert(outer.end(), inner.begin(), inner.end());
  return outer;
}

namespace {

// Null if the port is taken.
std::optional<base::Fd> try_to_bind(int port) {
  sockaddr_storage bytes = {};
  socklen_t length = sizeof(sockaddr_in6);
  auto socket = open_socket(AF_INET6);
  if (socket) {
    auto* six = reinterpret_cast<sockaddr_in6*>(&bytes);
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(static_cast<std::uint16_t>(port));
    set(*socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  } else {
    socket = open_socket(AF_INET);
    if (!socket) base::fail_errno("cannot open a TCP socket");
    auto* four = reinterpret_cast<sockaddr_in*>(&bytes);
    four->sin_family = AF_INET;
    four->sin_port = htons(static_cast<std::uint16_t>(port));
    length = sizeof(sockaddr_in);
  }
  set(*socket, SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(socket->get(), as_sockaddr(bytes), length) != 0) {
    if (errno == EADDRINUSE) return std::nullopt;
    base::fail_errno(base::sentence("cannot use port ", port));
  }
  return socket;
}

std::optional<base::Fd> try_to_listen(int port) {
  auto socket = try_to_bind(port);
  if (!socket || ::listen(socket->get(), SOMAXCONN) == 0) return socket;
  if (errno != EADDRINUSE) base::fail_errno(base::sentence("cannot listen at port ", port));
  return std::nullopt;
}

// The port of the rendezvous is left for rank 0, which may come later.
base::Fd take_one_of(const PortRange& range, std::optional<base::Fd> (*take)(int port)) {
  const auto rendezvous = rendezvous_from_environment();
  for (int port = range.first; port <= range.last; ++port) {
    if (rendezvous && port == rendezvous->port) continue;
    if (auto socket = take(port)) return std::move(*socket);
  }
  base::fail(Code::invalid_argument, "PLAIT_PORTS=", range.first, '-', range.last,
             ": all of these ports are taken on this host; each of its ranks needs one");
}

}  // namespace

base::Fd listen_at_port(int port) {
  const auto range = port == 0 ? ports_from_environment() : std::nullopt;
  if (range) return take_one_of(*range, try_to_listen);
  auto socket = try_to_listen(port);
  PLAIT_CHECK(socket, "port ", port,
              " of this host is taken, perhaps by another job, or by another rank 0 of this one: "
              "PLAIT_RENDEZVOUS=HOST:PORT names another port for all ranks");
  return std::move(*socket);
}

base::Fd reserve_port() {
  if (const auto range = ports_from_environment()) return take_one_of(*range, try_to_bind);
  auto socket = try_to_bind(0);
  if (!socket) base::fail_errno("cannot reserve a port");
  return std::move(*socket);
}

int port_of(const base::Fd& socket) {
  sockaddr_storage bytes = {};
  socklen_t length = sizeof(bytes);
  if (::getsockname(socket.get(), as_sockaddr(bytes), &length) != 0) return 0;
  return ntohs(bytes.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&bytes)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&bytes)->sin_port);
}

std::optional<base::Fd> accept_caller(const base::Fd& listener) {
  const base::CloseOnFork closing;
  base::Fd socket = closing.adopt(::accept4(listener.get(), nullptr, nullptr, kFlags));
  if (socket) return socket;
  refuse_for_shortage("cannot accept another rank's connection");
  return std::nullopt;
}

std::optional<base::Fd> begin_to_connect(const Address& address, int& error) {
  auto socket = open_socket(address.family());
  const auto* to = reinterpret_cast<const sockaddr*>(&address.bytes);
  if (socket && (::connect(socket->get(), to, address.length) == 0 || errno == EINPROGRESS))
    return socket;
  error = errno;
  return std::nullopt;
}

int progress_of(const base::Fd& socket) {
  pollfd asked = {.fd = socket.get(), .events = POLLOUT, .revents = 0};
  if (::poll(&asked, 1, 0) == 0) return EINPROGRESS;
  int error = 0;
  socklen_t length = sizeof(error);
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

bool is_closed_by_peer(const base::Fd& socket) {
  pollfd asked = {.fd = socket.get(), .events = POLLRDHUP, .revents = 0};
  return ::poll(&asked, 1, 0) > 0;
}

bool send_rest(const base::Fd& socket, const std::string& message, std::size_t& done) {
  while (done < message.size()) {
    const ssize_t sent = ::send(socket.get(), message.data() + done, message.size() - done,
                                MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EINTR) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (sent > 0) done += static_cast<std::size_t>(sent);
  }
  return true;
}

std::string peer_of(const base::Fd& socket) { return end_of(socket, ::getpeername); }
std::string self_of(const base::Fd& socket) { return end_of(socket, ::getsockname); }

std::string interface_of(const std::string& host) {
  const Interfaces interfaces = list_interfaces();
  for (const ifaddrs* one = interfaces.get(); one != nullptr; one = one->ifa_next) {
    if (is_usable(*one, std::nullopt) && show_host(address_of(*one)) == host) return one->ifa_name;
  }
  return "";
}

// A rank that waits asks by frames of its own, and is told sooner. The kernel's questions are for a
// rank that doesn't wait: when it next calls plait, it finds that they were not answered.
//
// The kernel would end a connection after 15 minutes without an answer. If the other host came back
// after that, it would take this for the end of this process. A longer limit of the kernel's leaves
// the decision to plait. It isn't unlimited, because the kernel also keeps what a process that has
// ended could not send. And it must be long, because it also ends a connection whose receiver lives
// but doesn't read.
void set_options(const base::Fd& socket, base::Nanoseconds lost_after) {
  const auto seconds = static_cast<int>((lost_after + base::kSecond - 1) / base::kSecond);
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, seconds);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, seconds);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT,
      static_cast<int>(kUntilKernelEndsIt / base::kMillisecond));
}

}  // namespace plait::comm::tcp
