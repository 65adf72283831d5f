// Connecting has a deadline of its own, which is short: a rank that stops half-way costs the others
// no more than that, however long a call may take.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "comm/mapped/mapped_transport.h"
#include "comm/meet/socket_rendezvous.h"
#include "comm/meet/thread_rendezvous.h"
#include "comm/milestones.h"
#include "comm/session/same_link.h"
#include "comm/session/state.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait {
namespace {

constexpr base::Nanoseconds kConnect = 500 * base::kMillisecond;
const comm::WaitPolicy kPolicy = {.timeout = 600 * base::kSecond, .connect_timeout = kConnect};

// Ranks meet, and then each learns of the others' processors, shares its page, counts the hosts and
// shares its collectives' mailbox. How far the rank comes that stops:
enum class Stop : std::uint8_t { after_meeting, after_its_page, after_counting_hosts, never };

using Meet = std::function<std::unique_ptr<comm::Rendezvous>(int rank, base::Nanoseconds timeout)>;

void connect_with(Stop stop, int rank, const Meet& meet, const Milestones& ended) {
  const auto create = [&](const comm::WaitPolicy& connecting) {
    auto rendezvous = meet(rank, connecting.timeout);
    return comm::make_mapped_transport(std::move(rendezvous), connecting);
  };
  if (rank == 1 && stop == Stop::after_meeting) {
    const auto rendezvous = meet(rank, kPolicy.timeout);
    return ended.await(0);
  }
  if (rank == 1 && stop != Stop::never) {
    const auto transport = create(kPolicy);
    if (stop == Stop::after_counting_hosts) transport->all_gather(comm::link_and({}, "host"));
    return ended.await(0);
  }
  comm::WaitPolicy policy = kPolicy;
  // Both connect within it, on a busy machine too.
  if (stop == Stop::never) policy.connect_timeout = 4 * kConnect;
  const auto connect = [&] {
    return Communicator(
        Communicator::State::connect({.transport_name = "shm", .policy = policy}, create));
  };
  if (stop == Stop::never) {
    Communicator comm = connect();
    EXPECT_EQ(comm.state().group().policy().timeout, kPolicy.timeout);
    // Late for connecting, and not for a call.
    if (rank == 1) base::sleep_until(base::now() + 5 * kConnect);
    barrier(comm);
    return comm.split(0, rank).reset();
  }
  const base::Nanoseconds begin = base::now();
  expect_error(Code::timeout, 1, connect);
  EXPECT_LT(base::now() - begin, 20 * base::kSecond);
}

class EveryStop : public testing::TestWithParam<Stop> {};

INSTANTIATE_TEST_SUITE_P(Connect, EveryStop,
                         testing::Values(Stop::after_meeting, Stop::after_its_page,
                                         Stop::after_counting_hosts, Stop::never));

TEST_P(EveryStop, OfAProcessEndsAtTheDeadlineForConnecting) {
  Milestones ended;
  const std::string name = comm::shm::name_of_job(fresh_job());
  fork_ranks(2, [&](int rank) {
    const Meet meet = [&](int me, base::Nanoseconds timeout) {
      return comm::shm::meet_at(name, {me, 2, timeout});
    };
    connect_with(GetParam(), rank, meet, ended);
    if (rank == 0) ended.reach(0);
  });
}

TEST_P(EveryStop, OfAThreadEndsAtTheDeadlineForConnecting) {
  Milestones ended;
  const auto rendezvous = std::make_shared<comm::threads::ThreadRendezvous>(2);
  const Meet meet = [&](int me, base::Nanoseconds timeout) {
    return comm::threads::join(rendezvous, me, timeout);
  };
  const std::jthread other([&] { connect_with(GetParam(), 1, meet, ended); });
  connect_with(GetParam(), 0, meet, ended);
  ended.reach(0);
}

}  // namespace
}  // namespace plait
