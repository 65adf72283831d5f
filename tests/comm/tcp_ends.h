// Connected sockets over loopback, and ranks that meet, for tests of what they say to each other.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <thread>

#include "comm/control/address.h"
#include "comm/meet/timeout_hints.h"

namespace plait::comm::tcp {

inline Identity rank_of_three(int rank, const std::string& key = "") {
  return {
      .rank = rank, .world = 3, .job = "a job", .key = key, .info = info_of_this_process(29600)};
}

inline std::vector<Address> loopback(const base::Fd& listener) {
  std::string why;
  return resolve("127.0.0.1", port_of(listener), why);
}

// A socket that keeps a port of loopback from other processes, though it doesn't listen: the test
// may listen there, and a caller is refused where it doesn't.
inline base::Fd keep_port() {
  base::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return socket;
}

// Repeats `step` until it returns true.
template <class Step>
void await(const Step& step) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!step()) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << "it takes too long";
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// The next message, or what was wrong with the connection.
inline Message next_message(const base::Fd& socket) {
  std::string bytes;
  std::optional<Message> message;
  bool is_open = true;
  await([&] {
    message = read_message(socket, bytes, kMostHelloBytes, is_open);
    return message || !is_open;
  });
  return message.value_or(Message{MessageKind::mismatch, "nothing came"});
}

}  // namespace plait::comm::tcp
