#include "base/read_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "folder.h"
#include "tensor/sentence_of.h"

namespace plait::base {
namespace {

class ReadFile : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ / name; }

 private:
  const test::Folder folder_;
};

TEST_F(ReadFile, GivesEveryByte) {
  std::string text("a\0b", 3);
  text.append(10000, 'x').append("\r\n");
  std::ofstream(path("file")) << text;
  EXPECT_EQ(read_file(path("file"), text.size()), text);
  std::ofstream(path("empty")) << "";
  EXPECT_EQ(read_file(path("empty"), 0), "");
}

TEST_F(ReadFile, SaysWhatItCannotRead) {
  const std::string none = path("none");
  EXPECT_EQ(sentence_of([&] { read_file(none, 1); }, Code::system),
            "cannot read " + none + ": No such file or directory");
  std::ofstream(path("long")) << std::string(1025, 'x');
  EXPECT_EQ(sentence_of([&] { read_file(path("long"), 1024); }),
            "cannot read " + path("long") + ": it is longer than 1 KiB");
}

TEST_F(ReadFile, DoesNotWaitForWhatIsNoFile) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  for (const std::string& other : {path("pipe"), path("."), std::string("/dev/zero")}) {
    EXPECT_EQ(sentence_of([&] { read_file(other, 1024); }),
              "cannot read " + other + ": it is not a regular file");
  }
}

}  // namespace
}  // namespace plait::base
