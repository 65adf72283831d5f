// Behaviour is defined in conformance/.
#include "conformance/collectives.h"
#include "conformance/mailbox.h"
#include "simulation/simulation.h"

namespace plait::conformance {
namespace {

void run_modelled(int world, const Body& body, const CommunicatorOptions& options) {
  comm::modelled::Simulation ranks({.ranks = world, .network = {.link = options.link.value()}});
  EXPECT_NO_THROW(ranks.run(body));
}

const RankMaker kModelled = {
    .name = "modelled", .run = run_modelled, .link = "10gbit,20us", .one_thread = true};

}  // namespace

INSTANTIATE_TEST_SUITE_P(Modelled, MailboxConformance, worlds_of(kModelled, {1, 2, 3, 5, 8}),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Modelled, SeveralGroupsConformance, worlds_of(kModelled, {2, 3}),
                         case_name);

}  // namespace plait::conformance
