#include "cli/output_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "folder.h"
#include "tensor/sentence_of.h"

namespace plait::cli {
namespace {

TEST(OutputFiles, MustNotOverwriteOneAnother) {
  const test::Folder folder;
  const std::string path = folder / "file";
  EXPECT_NO_THROW(check_distinct({}));
  EXPECT_NO_THROW(check_distinct({.json = "-", .trace = path, .html = path + "2"}));
  EXPECT_EQ(sentence_of([&] { check_distinct({.json = path, .svg = path}); }),
            "--json and --svg both name " + path);
  EXPECT_EQ(sentence_of([&] { check_distinct({.trace = path, .html = folder / "./file"}); }),
            "--trace and --html both name " + folder / "./file");
  std::filesystem::create_symlink(path, folder / "link");
  std::ofstream(path) << "text";
  EXPECT_THROW(check_distinct({.json = path, .trace = folder / "link"}), Error);
}

TEST(OutputFiles, MustNotOverwriteWhatTheVerbReads) {
  EXPECT_EQ(sentence_of([] { check_distinct({.html = "in"}, {{"the shapes", "in"}}); }),
            "--html in would be written over the shapes");
  EXPECT_NO_THROW(check_distinct({.html = "in"}, {{"the shapes", ""}, {"the plans", "other"}}));
}

TEST(OutputFiles, OnlyJsonGoesToStandardOutput) {
  EXPECT_NO_THROW(check_distinct({.json = "-"}));
  EXPECT_EQ(sentence_of([] { check_distinct({.svg = "-"}); }),
            "--svg - : only --json can go to standard output");
}

TEST(OutputFiles, AreRefusedBeforeTheWorkIfTheyCannotBeWritten) {
  const test::Folder folder;
  EXPECT_NO_THROW(check_writable({.json = "-", .trace = folder / "file"}));
  EXPECT_THROW(check_writable({.html = folder / "none/file"}), Error);
  EXPECT_TRUE(folder.names().empty());
}

TEST(OutputFiles, HaveTheJsonAsALine) {
  const test::Folder folder;
  const nlohmann::ordered_json figures = {{"b", 1}, {"a", {2.5, "text"}}};
  OutputFiles{}.write_json(figures);
  OutputFiles{.json = folder / "file"}.write_json(figures);
  const std::string text = test::slurp(folder / "file");
  EXPECT_EQ(nlohmann::ordered_json::parse(text), figures);
  EXPECT_LT(text.find("\"b\""), text.find("\"a\""));  // in the order of the figures
  EXPECT_TRUE(text.ends_with("}\n"));
}

TEST(OutputFiles, AreNamedOnceTheyAreWritten) {
  EXPECT_EQ(OutputFiles{.json = "j"}.show(), "");
  EXPECT_EQ((OutputFiles{.trace = "t", .html = "h", .svg = "s"}.show()),
            "Timeline: h\nPicture: s\nFor Perfetto: t\n");
  EXPECT_FALSE(OutputFiles{.trace = "t"}.draws());
  EXPECT_TRUE(OutputFiles{.trace = "t"}.traces());
  EXPECT_TRUE(OutputFiles{.svg = "s"}.traces());
  EXPECT_FALSE(OutputFiles{.json = "-"}.traces());
}

}  // namespace
}  // namespace plait::cli
