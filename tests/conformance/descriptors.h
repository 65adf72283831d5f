// The descriptors of this process, and the bytes that its TCP connections have sent.
#pragma once

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

namespace plait {

inline constexpr int kMostDescriptors = 4096;

inline int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < kMostDescriptors; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

// Calls `see` with what the kernel knows of each TCP socket.
template <class See>
void for_each_tcp_socket(const See& see) {
  for (int fd = 0; fd < kMostDescriptors; ++fd) {
    tcp_info info = {};
    socklen_t length = sizeof(info);
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0) see(info);
  }
}

inline int established_connections() {
  constexpr int kEstablished = 1;
  int count = 0;
  for_each_tcp_socket([&](const tcp_info& info) { count += info.tcpi_state == kEstablished; });
  return count;
}

// The bytes that all TCP connections have sent, each byte counted once. On a busy machine it may
// lack a few segments: the kernel counts one as sent again that it then doesn't send again.
inline std::int64_t tcp_bytes_sent() {
  std::int64_t bytes = 0;
  for_each_tcp_socket([&](const tcp_info& info) {
    bytes += static_cast<std::int64_t>(info.tcpi_bytes_sent - info.tcpi_bytes_retrans);
  });
  return bytes;
}

}  // namespace plait
