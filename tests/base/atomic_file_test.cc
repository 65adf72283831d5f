#include "base/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "folder.h"
#include "plait/error.h"
#include "tensor/sentence_of.h"

namespace plait::base {
namespace {

using test::Folder;
using test::slurp;

void write(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.append(text);
  file.commit();
}

TEST(AtomicFile, AppearsWhole) {
  const Folder folder;
  const std::string path = folder / "file";
  const std::string large(3'000'000, 'x');
  {
    AtomicFile file(path);
    file.append("begin ");
    file.append(large);
    EXPECT_FALSE(std::filesystem::exists(path));
    file.commit();
  }
  EXPECT_EQ(slurp(path), "begin " + large);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"file"});
}

TEST(AtomicFile, WithoutCommitNothingChanges) {
  const Folder folder;
  const std::string path = folder / "file";
  write(path, "old");
  {
    AtomicFile(path).append("new");
  }
  EXPECT_EQ(slurp(path), "old");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"file"});
}

TEST(CheckWritable, LeavesEverythingAsItIs) {
  const Folder folder;
  const std::string path = folder / "file";
  check_writable(path);
  EXPECT_TRUE(folder.names().empty());
  write(path, "old");
  check_writable(path);
  EXPECT_EQ(slurp(path), "old");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"file"});
  check_writable("/dev/null");
}

TEST(CheckWritable, SaysWhyNothingCanBeWritten) {
  const Folder folder;
  const std::string inside = folder / "none/file";
  for (const auto& [path, reason] : {std::pair{inside, "No such file or directory"},
                                     std::pair{folder / ".", "Is a directory"}}) {
    EXPECT_EQ(sentence_of([&, file = path] { check_writable(file); }, Code::system),
              "cannot write " + path + ": " + reason);
  }
}

// Opening a pipe would wait for a reader, and closing it would end the reader's input.
TEST(CheckWritable, DoesNotOpenAPipe) {
  const Folder folder;
  const std::string path = folder / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  check_writable(path);
}

TEST(AtomicFile, TwoWritersDoNotMeet) {
  const Folder folder;
  const std::string path = folder / "file";
  AtomicFile first(path);
  AtomicFile second(path);
  first.append("first");
  second.append("second");
  second.commit();
  first.commit();
  EXPECT_EQ(slurp(path), "first");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"file"});
}

TEST(AtomicFile, HasTheUsualMode) {
  const mode_t mask = ::umask(0027);
  const Folder folder;
  write(folder / "file", "text");
  ::umask(mask);
  struct stat status{};
  ASSERT_EQ(::stat((folder / "file").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640);
}

TEST(AtomicFile, LinksStayLinks) {
  const Folder folder;
  write(folder / "target", "old");
  std::filesystem::create_symlink("target", folder / "link");
  write(folder / "link", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(slurp(folder / "target"), "new");
}

TEST(AtomicFile, DevicesAreWrittenInPlace) {
  write("/dev/null", "text");
  struct stat status{};
  ASSERT_EQ(::stat("/dev/null", &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
}

TEST(AtomicFile, RefusesAFolder) {
  const Folder folder;
  EXPECT_THROW(AtomicFile(folder / ""), Error);
  EXPECT_THROW(AtomicFile(""), Error);
}

TEST(AtomicFile, SaysWhenTheDiskIsFull) {
  EXPECT_EQ(sentence_of([] { write("/dev/full", "text"); }, Code::system),
            "cannot write /dev/full: No space left on device");
}

}  // namespace
}  // namespace plait::base
