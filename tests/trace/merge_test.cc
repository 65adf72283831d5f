#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "base/fd.h"
#include "plait/error.h"
#include "plait/trace.h"
#include "tensor/sentence_of.h"
#include "timeline.h"
#include "trace/pack.h"

namespace plait {
namespace {

using trace::Folder;

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) ADD_FAILURE() << "no pipe";
    from = base::Fd(ends[0]);
    to = base::Fd(ends[1]);
  }
  base::Fd from, to;
};

std::vector<std::byte> receive_all(const base::Fd& from) {
  std::vector<std::byte> all;
  std::array<std::byte, 4096> part{};
  for (;;) {
    const ssize_t got = ::read(from.get(), part.data(), part.size());
    if (got <= 0) return all;
    all.insert(all.end(), part.begin(), part.begin() + got);
  }
}

// Rank 1 waits for a message, records what it does then, and sends the records back.
[[noreturn]] void be_rank_one(const Pipe& words, const Pipe& records) {
  Trace trace(1);
  char word = 0;
  if (::read(words.from.get(), &word, 1) != 1) ::_exit(1);
  {
    const Span span(&trace, Lane::compute, "after");
  }
  const auto bytes = trace.pack();
  const auto sent = ::write(records.to.get(), bytes.data(), bytes.size());
  ::_exit(sent == static_cast<ssize_t>(bytes.size()) ? 0 : 1);
}

TEST(Merge, ProcessesOfAHostShareATimeline) {
  const Pipe words;
  Pipe records;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) be_rank_one(words, records);
  records.to.reset();

  Trace trace(0);
  {
    const Span span(&trace, Lane::compute, "before");
  }
  ASSERT_EQ(::write(words.to.get(), "!", 1), 1);
  const std::array packs = {receive_all(records.from), trace.pack()};
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);

  const Folder folder;
  const std::string path = folder / "timeline.json";
  write_json(path, packs);
  const auto spans = trace::of_phase(trace::parse(path), "X");
  ASSERT_EQ(spans.size(), 2);
  EXPECT_EQ(spans[0].at("name"), "before");
  EXPECT_EQ(spans[0].at("pid"), 0);
  EXPECT_EQ(spans[1].at("name"), "after");
  EXPECT_EQ(spans[1].at("pid"), 1);
  // The cause comes before the effect, although two processes measured them.
  EXPECT_LE(spans[0].at("ts").get<double>() + spans[0].at("dur").get<double>(), spans[1].at("ts"));
}

TEST(Merge, RefusesTwoPacksOfOneRank) {
  const std::vector packs = {trace::pack(trace::made_up(4)), trace::pack(trace::made_up(2)),
                             trace::pack(trace::made_up(4))};
  const Folder folder;
  EXPECT_EQ(sentence_of([&] { write_json(folder / "timeline.json", packs); }),
            "trace: two of the packs are of rank 4");
  EXPECT_TRUE(folder.names().empty());
}

TEST(Merge, DamageLeavesTheFileAlone) {
  const Folder folder;
  const std::string path = folder / "timeline.json";
  Trace(0).write_json(path);
  const std::string before = trace::slurp(path);
  auto damaged = trace::pack(trace::made_up(1));
  damaged.pop_back();
  EXPECT_THROW(write_json(path, std::vector{trace::pack(trace::made_up(0)), damaged}), Error);
  EXPECT_EQ(trace::slurp(path), before);
  EXPECT_EQ(folder.names().size(), 1);
}

TEST(Merge, AnUnwritablePathGetsASentence) {
  const Folder folder;
  const std::string path = folder / "no/such/folder.json";
  EXPECT_EQ(sentence_of([&] { Trace(0).write_json(path); }, Code::system),
            "cannot write " + path + ": No such file or directory");
}

}  // namespace
}  // namespace plait
