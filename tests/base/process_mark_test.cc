#include "base/process_mark.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>

namespace plait::base {
namespace {

TEST(ProcessMark, IsOfAProcessWhoseEndIsSeen) {
  std::array<int, 2> ends;
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string words = mark_of_this_process();
    if (::write(ends[1], words.data(), words.size()) < 0) ::_exit(1);
    for (;;) ::pause();
  }
  std::array<char, 200> words = {};
  ASSERT_GT(::read(ends[0], words.data(), words.size() - 1), 0);
  const ProcessMark mark = read_process_mark(words.data());
  EXPECT_EQ(mark.pid, child);
  EXPECT_FALSE(mark.has_ended());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(mark.has_ended());
  for (const int end : ends) ::close(end);
}

TEST(ProcessMark, MeansNothingInAnotherPlace) {
  for (const char* words : {"", "1", "999999999 5 another place", "nonsense", "1 x"})
    EXPECT_FALSE(read_process_mark(words).has_ended()) << words;
}

}  // namespace
}  // namespace plait::base
