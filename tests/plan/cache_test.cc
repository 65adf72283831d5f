// Measured plans: what is written can be read again, and what can't be trusted is refused.
#include "plan/cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "folder.h"
#include "plait/error.h"

namespace plait {
namespace {

using test::Folder;

PlanKey problem(int m) {
  return parse_plan_key("op=matmul_all_reduce n=64 k=64 ranks=2 transport=shm m=" +
                        std::to_string(m));
}

PlanCache::Entry fused(std::int64_t nanoseconds = 10) {
  return {.plan = parse_plan("fused"), .nanoseconds = nanoseconds, .serial = 20};
}

PlanCache example() {
  PlanCache cache("a machine");
  cache.add(problem(8), fused());
  cache.add(problem(16),
            {.plan = parse_plan("pipelined parts=3 last=25"), .nanoseconds = 1, .serial = 2});
  return cache;
}

std::string refusal_of(const std::string& text) {
  try {
    PlanCache::parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(PlanCaches, AreTextInOneOrder) {
  const std::string line =
      "op=matmul_all_reduce m=16 n=64 k=64 x=bf16 w=bf16 out=bf16 wire=f32 "
      "ranks=2 transport=shm | pipelined parts=3 last=25 | 1 | 2\n";
  const std::string text = example().text();
  EXPECT_EQ(text.find("plait plans 2\nmachine a machine\n" + line), 0U) << text;
  EXPECT_EQ(PlanCache::parse(text), example());
  PlanCache other("a machine");
  other.add(problem(16), fused(99));
  other.add(problem(16),
            {.plan = parse_plan("pipelined parts=3 last=25"), .nanoseconds = 1, .serial = 2});
  other.add(problem(8), fused());
  EXPECT_EQ(other.text(), text);
}

TEST(PlanCaches, KnowWhatTheyWereToldAlone) {
  const PlanCache cache = example();
  EXPECT_EQ(cache.find(problem(8)), parse_plan("fused"));
  EXPECT_EQ(cache.find(problem(9)), std::nullopt);
  PlanKey linked = problem(8);
  linked.link = parse_link("1gbit,1us");
  EXPECT_EQ(cache.find(linked), std::nullopt);
  PlanKey plain = problem(8);
  plain.weight = "bf16:plain";
  EXPECT_EQ(cache.find(plain), std::nullopt);
}

TEST(PlanCaches, RefuseWhatTheyDidNotWrite) {
  const std::string good = example().text();
  EXPECT_EQ(refusal_of(""), "plans: the first line must be \"plait plans 2\", not \"\"");
  EXPECT_EQ(refusal_of("plait plans 1\n"),
            "plans: the first line must be \"plait plans 2\", not \"plait plans 1\"");
  EXPECT_EQ(refusal_of("plait plans 2\nop=matmul\n"),
            "plans: the second line must name their machine: \"machine ...\"");
  EXPECT_EQ(refusal_of(good.substr(0, good.size() - 1)), "plans: the last line is incomplete");
  EXPECT_EQ(refusal_of(good + good.substr(good.rfind("op="))),
            "plans, line 5: its problem has a line above already");
  EXPECT_EQ(refusal_of(good + "op=matmul_all_gather m=8 n=8 k=8 x=bf16 w=bf16 out=bf16 wire=bf16 "
                              "ranks=2 | fused | 1 | 2\n"),
            "plans, line 5: matmul_all_gather cannot run the plan \"fused\"");
  EXPECT_EQ(refusal_of(good + "op=matmul m=8 n=8 k=8 | serial | 1 | 2\n"),
            "plans, line 5: this problem must be written as \"op=matmul m=8 n=8 k=8 x=bf16 w=bf16 "
            "out=bf16 wire=bf16 ranks=2\"");
  EXPECT_EQ(refusal_of(good + "serial\n"), "plans, line 5: it does not have 4 columns");
}

TEST(PlanCaches, AreReadOrRefusedWhateverIsInThem) {
  std::mt19937 random(3);
  const std::string good = example().text();
  for (int round = 0; round < 2000; ++round) {
    std::string text = good.substr(0, random() % (good.size() + 1));
    for (int change = 0; change < 3 && !text.empty(); ++change)
      text[random() % text.size()] = static_cast<char>(random() % 128);
    refusal_of(text);
  }
}

TEST(CacheFiles, AreMadeWithTheirFoldersAndAddedTo) {
  const Folder folder;
  const std::string path = folder / "some/where/plans";
  EXPECT_EQ(load_cache(path, "a machine"), std::nullopt);
  save_cache(path, example());
  PlanCache more("a machine");
  more.add(problem(8), {.plan = parse_plan("serial"), .nanoseconds = 5, .serial = 5});
  more.add(problem(32), fused());
  save_cache(path, more);
  const auto read = load_cache(path, "a machine");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->entries().size(), 3U);
  EXPECT_EQ(read->find(problem(8)), parse_plan("serial"));  // the later entry
  EXPECT_EQ(read->find(problem(16)), example().find(problem(16)));
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
  newer.add(problem(8), {.plan = parse_plan("serial"), .nanoseconds = 5, .serial = 5});
  save_cache(path, newer);
  PlanCache found("a machine");
  found.add(problem(32), fused());
  save_cache(path, found, known);
  const auto read = load_cache(path, "a machine");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->find(problem(8)), parse_plan("serial"));
  EXPECT_EQ(read->find(problem(16)), known.find(problem(16)));  // which was in no other file
  EXPECT_EQ(read->find(problem(32)), fused().plan);
}

TEST(CacheFiles, RefuseAProblemThatCouldNotBeReadAgain) {
  PlanCache cache("a machine");
  PlanKey key = problem(8);
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
    try {
      call();
      ADD_FAILURE() << "was taken";
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()), path +
                                               ": it was measured on \"a machine\", and this is "
                                               "\"another\"");
    }
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
        one.add(problem(1 + writer * 8 + i), fused());
        save_cache(path, one);
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(load_cache(path, "a machine")->entries().size(), 32U);
}

}  // namespace
}  // namespace plait
