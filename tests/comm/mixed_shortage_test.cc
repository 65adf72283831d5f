// A rank of a mixed mailbox that runs out of descriptors.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "conformance/ranks.h"
#include "plait/communicator.h"

namespace plait::conformance {

// Rank 1 may open one more file: the one that it lends, and none that it is lent.
TEST(Mixed, ARankThatCannotMapAnothersMemoryFailsOnAll) {
  over_hosts({0, 0, 1})(3, [](Communicator& comm) {
    if (comm.rank() == 1) {
      const int next = ::dup(0);
      ::close(next);
      const rlimit one_more = {.rlim_cur = static_cast<rlim_t>(next) + 1,
                               .rlim_max = static_cast<rlim_t>(next) + 1};
      ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &one_more), 0);
    }
    const Error error = expect_error(Code::system, [&] {
      const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = 1000});
    });
    EXPECT_EQ(error.culprit(), 1);
    EXPECT_TRUE(contains(error.what(), "rank 1: cannot open /proc/")) << error.what();
    EXPECT_TRUE(contains(error.what(), "Too many open files")) << error.what();
  });
}

}  // namespace plait::conformance
