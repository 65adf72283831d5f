#include "launch/find_command.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "folder.h"

namespace plait::launch {
namespace {

// Two folders in PATH, and one that is the working directory.
class FindCommand : public testing::Test {
 protected:
  FindCommand() : before_(std::filesystem::current_path()) {
    for (const char* name : {"one", "two", "here"})
      std::filesystem::create_directory(folder_ / name);
    ::setenv("PATH", (folder_ / "one" + ":" + folder_ / "none" + ":" + folder_ / "two").c_str(), 1);
    std::filesystem::current_path(folder_ / "here");
  }
  ~FindCommand() override { std::filesystem::current_path(before_); }

  std::string make(const std::string& file, bool executable = true) const {
    const std::string path = folder_ / file;
    std::ofstream(path) << "#!/bin/sh\n";
    using std::filesystem::perms;
    std::filesystem::permissions(path, executable ? perms::owner_all : perms::owner_read);
    return path;
  }

  static void expect_refusal(const std::string& name, int status, const std::string& refusal) {
    const Command command = find_command(name);
    EXPECT_EQ(command.path, "");
    EXPECT_EQ(command.status, status);
    EXPECT_EQ(command.refusal, refusal);
  }

  const test::Folder folder_;
  const std::filesystem::path before_;
};

TEST_F(FindCommand, TakesTheFirstInThePath) {
  const std::string second = make("two/tool");
  EXPECT_EQ(find_command("tool").path, second);
  const std::string first = make("one/tool");
  EXPECT_EQ(find_command("tool").path, first);
  EXPECT_EQ(find_command("tool").status, 0);
  EXPECT_EQ(find_command("tool").refusal, "");
}

TEST_F(FindCommand, PassesFilesAndFoldersThatCannotBeRun) {
  if (::geteuid() != 0) make("one/tool", /*executable=*/false);
  std::filesystem::create_directory(folder_ / "one/folder");
  EXPECT_EQ(find_command("tool").path, "");
  EXPECT_EQ(find_command("folder").status, kNotFound);
  const std::string second = make("two/folder");
  EXPECT_EQ(find_command("folder").path, second);
}

TEST_F(FindCommand, SaysWhichFileIsNotExecutable) {
  const std::string path = make("two/tool", /*executable=*/false);
  expect_refusal("tool", kCannotRun, "cannot run " + path + ": it is not executable");
  expect_refusal(path, kCannotRun, "cannot run " + path + ": Permission denied");
}

TEST_F(FindCommand, SaysThatTheFileIsInTheWorkingDirectory) {
  expect_refusal("tool", kNotFound, "command not found: tool");
  make("here/tool");
  expect_refusal("tool", kNotFound, "command not found: tool; ./tool exists");
  EXPECT_EQ(find_command("./tool").path, "./tool");
}

TEST_F(FindCommand, RefusesAPathWithTheReasonOfTheSystem) {
  expect_refusal("", kNotFound, "the command is empty");
  expect_refusal("./none", kNotFound, "cannot run ./none: No such file or directory");
  const std::string file = make("one/tool");
  expect_refusal(file + "/x", kNotFound, "cannot run " + file + "/x: Not a directory");
  expect_refusal(folder_ / "one", kCannotRun, "cannot run " + folder_ / "one" + ": Is a directory");
}

TEST_F(FindCommand, AnEmptyEntryIsTheWorkingDirectory) {
  make("here/tool");
  ::setenv("PATH", (":" + folder_ / "one").c_str(), 1);
  EXPECT_EQ(find_command("tool").path, "./tool");
}

TEST_F(FindCommand, LooksInTheUsualFoldersWithoutAPath) {
  ::unsetenv("PATH");
  EXPECT_TRUE(find_command("sh").path.ends_with("/bin/sh"));
}

}  // namespace
}  // namespace plait::launch
