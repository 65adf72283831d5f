// Behaviour is defined in conformance/; this runs its suites over mailboxes in which some peers
// share memory and others are reached over TCP.
#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "conformance/collectives.h"
#include "conformance/mailbox.h"
#include "conformance/transport.h"
#include "plait/collectives.h"

namespace plait::conformance {

static RankMaker placed(const std::string& name, const std::vector<int>& hosts) {
  return {.name = name, .run = over_hosts(hosts), .sees_calls = false, .one_host = false};
}

const RankMaker kTwoAndTwo = placed("two_and_two_of_", {0, 0, 1, 1});
const RankMaker kThreeAndOne = placed("three_and_one_of_", {0, 0, 0, 1});

INSTANTIATE_TEST_SUITE_P(TwoAndTwo, TransportConformance, worlds_of(kTwoAndTwo, {4}), case_name);
INSTANTIATE_TEST_SUITE_P(TwoAndTwo, MailboxConformance, worlds_of(kTwoAndTwo, {4}), case_name);
INSTANTIATE_TEST_SUITE_P(TwoAndTwo, CollectivesConformance, worlds_of(kTwoAndTwo, {4}), case_name);
INSTANTIATE_TEST_SUITE_P(TwoAndTwo, RootsConformance, worlds_of(kTwoAndTwo, {4}), case_name);
INSTANTIATE_TEST_SUITE_P(TwoAndTwo, SeveralGroupsConformance, worlds_of(kTwoAndTwo, {4}),
                         case_name);

INSTANTIATE_TEST_SUITE_P(ThreeAndOne, TransportConformance, worlds_of(kThreeAndOne, {4}),
                         case_name);
INSTANTIATE_TEST_SUITE_P(ThreeAndOne, MailboxConformance, worlds_of(kThreeAndOne, {4}), case_name);
INSTANTIATE_TEST_SUITE_P(ThreeAndOne, CollectivesConformance, worlds_of(kThreeAndOne, {4}),
                         case_name);

// Ranks that take turns, as a launcher may place them, and one rank on each host. That all are on
// one host is tcp_test.
const RankMaker kInTurn = placed("in_turn_", {0, 1, 0, 1});
const RankMaker kApart = placed("apart_", {0, 1, 2, 3});

INSTANTIATE_TEST_SUITE_P(InTurn, TransportConformance, worlds_of(kInTurn, {3, 4}), case_name);
INSTANTIATE_TEST_SUITE_P(InTurn, MailboxConformance, worlds_of(kInTurn, {3, 4}), case_name);
INSTANTIATE_TEST_SUITE_P(Apart, TransportConformance, worlds_of(kApart, {4}), case_name);
INSTANTIATE_TEST_SUITE_P(Apart, MailboxConformance, worlds_of(kApart, {4}), case_name);

// Regions of memory of at least so many bytes that this process has mapped and may share.
static int count_shared_regions(std::size_t least) {
  int count = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (!contains(line, "memfd:plait")) continue;
    const std::size_t begin = std::stoull(line, nullptr, 16);
    const std::size_t end = std::stoull(line.substr(line.find('-') + 1), nullptr, 16);
    count += end - begin >= least ? 1 : 0;
  }
  return count;
}

TEST(Mixed, ANearPeersMailboxIsMappedAndAFarOnesIsNot) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  over_hosts({0, 1, 0, 0, 2})(5, [](Communicator& comm) {
    const int before = count_shared_regions(kBytes);
    const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = kBytes});
    const bool is_near = comm.rank() != 1 && comm.rank() != 4;
    const int after = count_shared_regions(kBytes);
    EXPECT_EQ(after - before, is_near ? 3 : 0) << comm.rank();
    // A part with one rank of each host.
    auto part = comm.split(is_near && comm.rank() != 0 ? -1 : 0, 0);
    if (!part) return;
    const auto theirs = part->make_mailbox({.slots = 1, .slot_bytes = 2 * kBytes});
    EXPECT_EQ(count_shared_regions(kBytes), after);
  });
}

// A rank leaves what it has posted to a near one.
TEST(Mixed, WhatALeavingRankHasPostedIsThereForARankThatComesLate) {
  over_hosts({0, 0, 1})(3, [](Communicator& comm) {
    const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = 1000});
    barrier(comm);
    if (comm.rank() == 0) {
      for (int peer = 1; peer < 3; ++peer) {
        mailbox->outbox(peer, 0)[999] = std::byte{7};
        mailbox->post(peer, 0, {}, 1000);
      }
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    mailbox->wait_arrived(0, 0, {});
    EXPECT_EQ(mailbox->inbox(0, 0)[999], std::byte{7});
    mailbox->release(0, 0);
    expect_error(Code::peer_lost, 0, "rank 0 has left the group",
                 [&] { mailbox->wait_arrived(0, 0, {}); });
  });
}

}  // namespace plait::conformance
