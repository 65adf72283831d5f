// The addresses of a rank, and the options of a connection between two ranks.
#include "comm/control/address.h"

#include <gtest/gtest.h>
#include <linux/tcp.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/environment.h"
#include "comm/tcp_ends.h"
#include "plait/error.h"
#include "tensor/sentence_of.h"

namespace plait::comm::tcp {
namespace {

int option_of(const base::Fd& socket, int level, int option) {
  int value = -1;
  socklen_t length = sizeof(value);
  EXPECT_EQ(::getsockopt(socket.get(), level, option, &value, &length), 0);
  return value;
}

// On its own, the kernel ends a connection after 15 minutes without an answer, and an idle one
// after two minutes of questions. PLAIT_LOST_AFTER may be an hour.
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

TEST(Interface, IsFoundByItsAddress) {
  EXPECT_EQ(interface_of("127.0.0.1"), "lo");
  EXPECT_EQ(interface_of("192.0.2.1"), "");  // kept for documents, so that no host has it
}

TEST(Ports, ARankListensWithinThoseOfPlaitPorts) {
  const base::Fd kept = listen_at_port(0);
  const int last = port_of(kept);
  const std::string range = base::sentence(last - 3, '-', last);
  const Environment environment({{"PLAIT_PORTS", range}});
  std::set<int> ports;
  std::vector<base::Fd> listeners;
  const std::string why = sentence_of([&] {
    for (int rank = 0; rank < 4; ++rank) {
      listeners.push_back(listen_at_port(0));
      ports.insert(port_of(listeners.back()));
    }
  });
  EXPECT_FALSE(ports.empty());  // unless other processes have three neighbouring ports
  EXPECT_GE(*ports.begin(), last - 3);
  EXPECT_LT(*ports.rbegin(), last);
  EXPECT_EQ(why, "PLAIT_PORTS=" + range +
                     ": all of these ports are taken on this host; each of its ranks needs one");
}

TEST(Ports, ThatOfTheRendezvousIsLeftForRank0) {
  int port = 0;
  {
    const base::Fd free = listen_at_port(0);
    port = port_of(free);
  }
  const Environment environment({{"PLAIT_PORTS", base::sentence(port, '-', port)},
                                 {"PLAIT_RENDEZVOUS", base::sentence("node1:", port)}});
  EXPECT_THROW(listen_at_port(0), Error);
  EXPECT_EQ(port_of(listen_at_port(port)), port);
}

TEST(Ports, ARangeThatMakesNoSenseIsRefused) {
  for (const char* text : {"30000", "30000-", "-30000", "0-9", "9-8", "1-65536", "1-2-3", "a-b"}) {
    const Environment environment({{"PLAIT_PORTS", std::string(text)}});
    EXPECT_EQ(
        sentence_of([] { listen_at_port(0); }),
        base::sentence("PLAIT_PORTS=", text, " is not a range of ports, such as 30000-30100"));
  }
}

}  // namespace
}  // namespace plait::comm::tcp
