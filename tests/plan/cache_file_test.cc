// Files of measured plans, which several processes may write.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "folder.h"
#include "plait/error.h"
#include "plan/cache.h"
#include "plan/cache_example.h"
#include "tensor/sentence_of.h"

namespace plait::plan {
namespace {

using test::Folder;

TEST(CacheFiles, AreMadeWithTheirFoldersAndAddedTo) {
  const Folder folder;
  const std::string path = folder / "some/where/plans";
  EXPECT_EQ(load_cache(path, "a machine"), std::nullopt);
  save_cache(path, example());
  PlanCache more("a machine");
  more.add(some_problem(8), {.plan = parse_plan("serial"), .nanoseconds = 5, .serial = 5});
  more.add(some_problem(32), fused());
  save_cache(path, more);
  const auto read = load_cache(path, "a machine");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->entries().size(), 3U);
  EXPECT_EQ(read->find(some_problem(8)), parse_plan("serial"));  // the later entry
  EXPECT_EQ(read->find(some_problem(16)), example().find(some_problem(16)));
}

// A cache without entries counts as none, so a program that reads none agrees with one that has
// plans.
TEST(CacheFiles, WithoutAnEntryAreNone) {
  const Folder folder;
  save_cache(folder / "plans", PlanCache("a machine"));
  EXPECT_EQ(load_cache(folder / "plans", "a machine"), std::nullopt);
  EXPECT_THROW(load_cache(folder / "plans", "another"), Error);
}

TEST(CacheFiles, AreNotMadeToFindOutWhetherTheyCanBe) {
  const Folder folder;
  check_place(folder / "plans");
  check_place(folder / "some/where/plans");
  EXPECT_TRUE(std::filesystem::is_empty(std::string(folder / ".")));
  std::ofstream(folder / "file") << "text";
  for (const char* path : {"file/plans", "file/some/where/plans"})
    EXPECT_THROW(check_place(folder / path), Error) << path;
  check_place(folder / "file");
  EXPECT_EQ(read_text(folder / "file"), "text");
}

// A long-running program has an old copy of a cache that others have changed since.
TEST(CacheFiles, KeepWhatOthersHaveWrittenOverWhatWasKnownBefore) {
  const Folder folder;
  const std::string path = folder / "plans";
  const PlanCache known = example();
  PlanCache newer("a machine");
  newer.add(some_problem(8), {.plan = parse_plan("serial"), .nanoseconds = 5, .serial = 5});
  save_cache(path, newer);
  PlanCache found("a machine");
  found.add(some_problem(32), fused());
  save_cache(path, found, known);
  const auto read = load_cache(path, "a machine");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->find(some_problem(8)), parse_plan("serial"));
  EXPECT_EQ(read->find(some_problem(16)),
            known.find(some_problem(16)));  // which was in no other file
  EXPECT_EQ(read->find(some_problem(32)), fused().plan);
}

TEST(CacheFiles, RefuseAProblemThatCouldNotBeReadAgain) {
  PlanCache cache("a machine");
  PlanKey key = some_problem(8);
  key.transport = "shm\nop=evil";
  EXPECT_THROW(cache.add(key, fused()), Error);
  EXPECT_TRUE(cache.entries().empty());
}

TEST(CacheFiles, OfAnotherMachineAreNeitherTakenNorOverwritten) {
  const Folder folder;
  const std::string path = folder / "plans";
  save_cache(path, example());
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { load_cache(path, "another"); }, [&] { save_cache(path, PlanCache("another")); }}) {
    EXPECT_EQ(sentence_of(call),
              path + ": it was measured on \"a machine\", and this is \"another\"");
  }
  EXPECT_EQ(*load_cache(path, "a machine"), example());
  std::ofstream(path) << "something else";
  EXPECT_THROW(save_cache(path, example()), Error);
  EXPECT_EQ(*read_text(path), "something else");
  EXPECT_THROW(load_cache(folder / ".", "a machine"), Error);
}

TEST(CacheFiles, LoseNothingToWritersAtOnce) {
  const Folder folder;
  const std::string path = folder / "plans";
  std::vector<std::thread> writers;
  writers.reserve(4);
  for (int writer = 0; writer < 4; ++writer) {
    writers.emplace_back([&, writer] {
      for (int i = 0; i < 8; ++i) {
        PlanCache one("a machine");
        one.add(some_problem(1 + writer * 8 + i), fused());
        save_cache(path, one);
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(load_cache(path, "a machine")->entries().size(), 32U);
}

}  // namespace
}  // namespace plait::plan
