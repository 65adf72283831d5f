// Addresses of this host and sockets of others.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"

namespace plait::comm::tcp {

struct Address {
  sockaddr_storage bytes = {};
  socklen_t length = 0;

  int family() const { return bytes.ss_family; }
  bool is_loopback() const;
};

std::string show_host(const Address& address);  // "10.0.0.1", without the port

// The addresses of a host, by name or in figures; `why` says why there are none. A name may take a
// minute: see lookup.h.
std::vector<Address> resolve(const std::string& host, int port, std::string& why);

// Those of a host in figures, and none of a name.
std::vector<Address> read_addresses(const std::string& host, int port);

// The names by which other hosts may reach this one: the addresses of all interfaces, or of the one
// that PLAIT_INTERFACE names. First comes the address from which this host calls `toward`, which
// others can probably call too, and last loopback. `toward` may be empty.
std::vector<std::string> local_hosts(const std::string& toward);

// A socket that listens at `port` of all addresses, IPv6 and IPv4; 0: at any that is free and that
// PLAIT_PORTS allows. Throws Error{system}, or invalid_argument if the port is taken, or all of
// PLAIT_PORTS are.
base::Fd listen_at_port(int port);

// A socket that keeps such a free port for listen_at_port() of this process, again and again.
base::Fd reserve_port();

int port_of(const base::Fd& socket);

// Null where no caller is waiting.
std::optional<base::Fd> accept_caller(const base::Fd& listener);

// Begins to connect. Null where that fails at once, for the reason `error`, as in errno.
std::optional<base::Fd> begin_to_connect(const Address& address, int& error);

// 0: it is connected; EINPROGRESS: not yet; otherwise why it can't be. ECONNREFUSED: a host has
// answered that no process listens there.
int progress_of(const base::Fd& socket);

// True if the other end has closed the connection. What it sent before can still be read.
bool is_closed_by_peer(const base::Fd& socket);

// Sends what the kernel takes of the message beyond its first `done` bytes. False where nothing
// more can be sent.
bool send_rest(const base::Fd& socket, const std::string& message, std::size_t& done);

// The hosts of both ends of a connection, in figures.
std::string peer_of(const base::Fd& socket);
std::string self_of(const base::Fd& socket);

// The interface of this host that has this address; empty: none has.
std::string interface_of(const std::string& host);

// No delay for small frames; the kernel asks an idle host now and then whether it is there. It ends
// the connection only after a day without an answer.
void set_options(const base::Fd& socket, base::Nanoseconds lost_after);

}  // namespace plait::comm::tcp
