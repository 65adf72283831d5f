// How a rank that connects to others finds out that one of them has ended.
#include "comm/meet/exit_probe.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "comm/tcp_ends.h"

namespace plait::comm::tcp {
namespace {

TEST(ExitProbe, FindsTheRankThatEndedFirst) {
  ExitProbe watch(4, [](int) { return std::vector<Address>(); });
  EXPECT_EQ(watch.find_ended(), std::nullopt);
  watch.note(1, true);
  watch.note(3, true);
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  watch.note(2, true);
  watch.note(1, true);
  watch.note(1, false);  // it has called again
  await([&] { return watch.find_ended().has_value(); });
  EXPECT_EQ(watch.find_ended(), 3);
}

TEST(ExitProbe, FindsARankThatListensNoMore) {
  const base::Fd there = listen_at_port(0);
  const base::Fd kept = keep_port();
  base::Fd gone = listen_at_port(port_of(kept));
  const std::vector<Address> addresses = loopback(gone);
  gone.reset();
  ExitProbe watch(3, [&](int rank) { return rank == 1 ? loopback(there) : addresses; });
  const Identity self = rank_of_three(0);
  TimeoutHints hints;
  await([&] {
    watch.probe({1, 2}, self, hints);
    return watch.find_ended().has_value();
  });
  EXPECT_EQ(watch.find_ended(), 2);
}

}  // namespace
}  // namespace plait::comm::tcp
