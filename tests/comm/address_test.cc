// What the kernel is told about a connection between two ranks.
#include "comm/tcp/address.h"

#include <gtest/gtest.h>
#include <linux/tcp.h>

#include <optional>
#include <utility>

#include "comm/tcp_ends.h"

namespace plait::comm::tcp {
namespace {

int option_of(const base::Fd& socket, int level, int option) {
  int value = -1;
  socklen_t length = sizeof(value);
  EXPECT_EQ(::getsockopt(socket.get(), level, option, &value, &length), 0);
  return value;
}

// By itself the kernel ends a connection after 15 minutes without an answer, and an idle one after
// two minutes of questions. PLAIT_LOST_AFTER may be an hour.
TEST(Options, TheKernelEndsNoConnectionBeforePlaitDoes) {
  const base::Fd listener = listen_at_port(0);
  int error = 0;
  const auto caller = begin_to_connect(loopback(listener).front(), error);
  ASSERT_TRUE(caller);
  std::optional<base::Fd> answerer;
  await([&] {
    if (!answerer) answerer = accept_caller(listener);
    return answerer && progress_of(*caller) == 0;
  });
  constexpr int kHour = 3600;
  for (const auto* end : {&caller, &std::as_const(answerer)}) {
    const base::Fd& socket = **end;
    set_options(socket, kHour * base::kSecond);
    EXPECT_EQ(option_of(socket, IPPROTO_TCP, TCP_USER_TIMEOUT), 24 * kHour * 1000);
    EXPECT_EQ(option_of(socket, SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(option_of(socket, IPPROTO_TCP, TCP_KEEPIDLE), kHour);
    EXPECT_EQ(option_of(socket, IPPROTO_TCP, TCP_KEEPINTVL), kHour);
    EXPECT_EQ(option_of(socket, IPPROTO_TCP, TCP_NODELAY), 1);
  }
}

}  // namespace
}  // namespace plait::comm::tcp
