#include "launch/spawn.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/cpus.h"
#include "folder.h"
#include "launch/pipes.h"
#include "launch/topology.h"
#include "tensor/sentence_of.h"

namespace plait::launch {
namespace {

Inherited nothing_special() {
  Inherited inherited = {};
  ::sigemptyset(&inherited.blocked);
  ::getrlimit(RLIMIT_NOFILE, &inherited.files);
  return inherited;
}

Child shell(const std::string& script) {
  return {.path = "/bin/sh",
          .words = {"sh", "-c", script},
          .environment = {"PATH=/usr/bin:/bin", "NAME=value"},
          .cpus = {}};
}

int status_of(pid_t pid) {
  int status = -1;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return status;
}

// The output of a script.
std::string output_of(Child child, const Inherited& inherited = nothing_special()) {
  const Pipe pipe;
  child.out = pipe.writer.get();
  EXPECT_EQ(status_of(spawn(child, inherited)), 0);
  return pipe.take();
}

TEST(Spawn, GivesTheProgramItsWordsAndItsEnvironment) {
  Child child = shell(R"(printf '%s|' "$0" "$1" "$NAME" "${HOME-none}")");
  child.words.insert(child.words.end(), {"zero", "two words"});
  EXPECT_EQ(output_of(child), "zero|two words|value|none|");
}

TEST(Spawn, ConnectsAllThreeStreams) {
  const Pipe in;
  const Pipe err;
  ASSERT_EQ(::write(in.writer.get(), "line\n", 5), 5);
  Child child = shell("read word; echo $word; echo wrong >&2");
  child.in = in.reader.get();
  child.err = err.writer.get();
  EXPECT_EQ(output_of(child), "line\n");
  EXPECT_EQ(err.take(), "wrong\n");
}

TEST(Spawn, ClosesThePipesOfOtherRanks) {
  const Pipe other;
  const std::string file = "/proc/$$/fd/" + std::to_string(other.writer.get());
  EXPECT_EQ(output_of(shell("test -e " + file + " || echo closed")), "closed\n");
}

TEST(Spawn, GivesItAProcessGroupOfItsOwnIfThatIsWanted) {
  for (const bool own : {true, false}) {
    // exec: a process of the shell's would outlive it, with the output of this test.
    Child child = shell("exec sleep 60");
    child.own_group = own;
    const pid_t pid = spawn(child, nothing_special());
    EXPECT_EQ(::getpgid(pid), own ? pid : ::getpgrp());
    ::kill(own ? -pid : pid, SIGKILL);
    EXPECT_TRUE(WIFSIGNALED(status_of(pid)));
  }
}

TEST(Spawn, BindsItToItsProcessors) {
  const std::vector<int> all = cpus_of(read_topology().cores);
  ASSERT_FALSE(all.empty());
  Child child = shell("grep Cpus_allowed_list /proc/self/status | cut -f 2");
  child.cpus = {all.back()};
  EXPECT_EQ(output_of(child), std::to_string(all.back()) + '\n');
  child.cpus = {};
  const cpu_set_t cpus = base::allowed_cpus();
  const std::string list = output_of(child);
  EXPECT_EQ(list == std::to_string(all.back()) + '\n', CPU_COUNT(&cpus) == 1);
}

TEST(Spawn, SaysWhichStepFailed) {
  Child nowhere = shell("true");
  nowhere.cpus = {100'000};
  EXPECT_EQ(sentence_of([&] { spawn(nowhere, nothing_special()); }, Code::system),
            "cannot bind sh (try --bind none): Invalid argument");
  Child closed = shell("true");
  closed.in = 9999;
  EXPECT_EQ(sentence_of([&] { spawn(closed, nothing_special()); }, Code::system),
            "cannot connect sh: Bad file descriptor");
  Child none = shell("true");
  none.path = "/";
  EXPECT_EQ(sentence_of([&] { spawn(none, nothing_special()); }, Code::system),
            "cannot run sh: Permission denied");
}

TEST(Spawn, SaysThatAnInterpreterIsMissing) {
  const test::Folder folder;
  const std::string path = folder / "script";
  std::ofstream(path) << "#!/no/such/interpreter\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  const Child child = {.path = path, .words = {"script"}, .environment = {}, .cpus = {}};
  EXPECT_EQ(sentence_of([&] { spawn(child, nothing_special()); }, Code::system),
            "cannot run script (is its interpreter missing?): No such file or directory");
}

TEST(Spawn, RestoresTheSignalsThatPlaitRunHasChanged) {
  const RestoredSignals restored;
  const Inherited inherited = take_over();
  EXPECT_EQ(
      output_of(shell("grep -E 'Sig(Blk|Ign)' /proc/self/status | tr -d '\\n\\t'"), inherited),
      "SigBlk:0000000000000000SigIgn:0000000000000000");
}

}  // namespace
}  // namespace plait::launch
