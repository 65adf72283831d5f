#include "comm/meet/process_table.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "base/check.h"
#include "base/process.h"
#include "base/region.h"
#include "conformance/ranks.h"

namespace plait::comm::shm {
namespace {

using base::Fd;

TEST(ProcessTable, KnowsThatThisProcessLives) {
  ProcessTable table(base::make_anonymous_file("plait", 1), {base::mark_of_this_process()});
  table.lock(0);
  EXPECT_FALSE(table.has_ended(0));
  const std::string pid = base::sentence("pid ", ::getpid());
  EXPECT_TRUE(table.describe(0).starts_with(pid)) << table.describe(0);
}

TEST(ProcessTable, SeesThatALockWasReleased) {
  const Fd file = base::make_anonymous_file("plait", 2);
  ProcessTable mine(Fd(::dup(file.get())), {"1 1", "2 2"});
  mine.lock(0);
  {
    ProcessTable other(Fd(::dup(file.get())), {"1 1", "2 2"});
    other.lock(1);
    EXPECT_FALSE(mine.has_ended(1));
  }
  EXPECT_TRUE(mine.has_ended(1));
}

// The host program may close descriptors that it does not know.
TEST(ProcessTable, AsksTheSystemWhereTheFileIsClosed) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  const std::string mine = base::mark_of_this_process();
  const std::string namespaces = mine.substr(mine.find(' ', mine.find(' ') + 1));
  const std::string start = std::to_string(base::start_of(child));
  const ProcessTable table(Fd(), {base::sentence(child, ' ', start, namespaces),
                                  base::sentence(child, ' ', start, " of other namespaces")});
  EXPECT_FALSE(table.has_ended(0));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(table.has_ended(0));
  EXPECT_FALSE(table.has_ended(1)) << "its pid means nothing here";
}

TEST(ProcessTable, TakesAnIntroductionThatMakesNoSense) {
  const ProcessTable table(Fd(), {"nonsense"});
  EXPECT_FALSE(table.has_ended(0));
  EXPECT_TRUE(contains(table.describe(0), "not known")) << table.describe(0);
}

}  // namespace
}  // namespace plait::comm::shm
