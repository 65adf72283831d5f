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
INSTANTIATE_TEST_SUITE_P(TcpThreads, CollectivesConformance, worlds_of(kTcpThreads, {2, 3}),
                         case_name);

}  // namespace plait::conformance
