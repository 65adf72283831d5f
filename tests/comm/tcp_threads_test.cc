// Ranks over TCP that are threads of one process, for the thread sanitizer.
#include "conformance/collectives.h"
#include "conformance/mailbox.h"
#include "conformance/transport.h"

namespace plait::conformance {

const RankMaker kTcpThreads = {
    .name = "tcp_threads", .run = run_threads_over_tcp, .sees_calls = false};

INSTANTIATE_TEST_SUITE_P(TcpThreads, TransportConformance, worlds_of(kTcpThreads, {2, 3}),
                         case_name);
INSTANTIATE_TEST_SUITE_P(TcpThreads, MailboxConformance, worlds_of(kTcpThreads, {2, 3}), case_name);
INSTANTIATE_TEST_SUITE_P(TcpThreads, SeveralGroupsConformance, worlds_of(kTcpThreads, {2, 3}),
                         case_name);
INSTANTIATE_TEST_SUITE_P(TcpThreads, CollectivesConformance, worlds_of(kTcpThreads, {2, 3}),
                         case_name);

// Two of three ranks share memory, at one address: the sanitizer sees both of them there.
const RankMaker kMixed = {.name = "mixed_threads",
                          .run = threads_over_hosts({0, 1, 1}),
                          .sees_calls = false,
                          .one_host = false};

INSTANTIATE_TEST_SUITE_P(Mixed, TransportConformance, worlds_of(kMixed, {3}), case_name);
INSTANTIATE_TEST_SUITE_P(Mixed, MailboxConformance, worlds_of(kMixed, {3}), case_name);
INSTANTIATE_TEST_SUITE_P(Mixed, CollectivesConformance, worlds_of(kMixed, {3}), case_name);

}  // namespace plait::conformance
