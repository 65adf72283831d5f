// Networks that were measured before (plan/known_links.h).
#include "plan/known_links.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "folder.h"
#include "plan/cache.h"

namespace plait::plan {
namespace {

const TransportFigures kSlow = {.latency = 40'000, .bytes_per_ns = 0.125, .processor = 0.4};

TEST(KnownLinks, AreReadAsTheyWereWritten) {
  const KnownLinks links = {
      {"2 ranks on 2 hosts, tcp: a to b", kSlow},
      {"4 ranks on 2 hosts, tcp: a to b", {.latency = 1, .bytes_per_ns = 2.5, .processor = 0}}};
  EXPECT_EQ(parse_links(text_of(links)), links);
  EXPECT_EQ(text_of(KnownLinks()), "plait links 1\n");
  EXPECT_EQ(links_path("/here/plans"), "/here/plans.links");
}

// A third host may be farther away than the second.
TEST(KnownLinks, NameTheEndsOfAllHosts) {
  EXPECT_EQ(ends_of({"tcp: a (v0) to b"}), "tcp: a (v0) to b");
  EXPECT_EQ(ends_of({"shm", "tcp: a (v0) to b", "tcp: a (v0) to c; a reason", "tcp: a (v0) to b"}),
            "tcp: a (v0) to b, c");
  EXPECT_EQ(ends_of({"tcp: a (v0) to b", "tcp: d (v1) to c"}),
            "tcp: a (v0) to b, tcp: d (v1) to c");
  EXPECT_EQ(ends_of({"shm"}), "");
}

TEST(KnownLinks, KeepTheFiguresOfANetworkThatIsStillTheSame) {
  KnownLinks links = {{"one", kSlow}};
  MeasuredLink again = {.figures = kSlow};
  again.figures.bytes_per_ns *= 1.2;
  again.figures.latency *= 1.8;
  again.figures.processor = 2;
  EXPECT_EQ(add(links, "one", again), kSlow);
  EXPECT_EQ(links["one"], kSlow);
  again.figures.processor = 0.1;
  EXPECT_EQ(add(links, "one", again).processor, 0.1);
  EXPECT_EQ(links["one"].bytes_per_ns, kSlow.bytes_per_ns);
  again.figures.bytes_per_ns *= 8;
  again.figures.latency = 1;
  EXPECT_EQ(add(links, "one", again), again.figures);
  EXPECT_EQ(add(links, "other", {.figures = kSlow}), kSlow);
  EXPECT_EQ(links, (KnownLinks{{"one", again.figures}, {"other", kSlow}}));
}

// Otherwise one figure of a disturbed measurement would change the problem's key by the other.
TEST(KnownLinks, KeepEachFigureForItself) {
  KnownLinks links = {{"one", kSlow}};
  MeasuredLink again = {.figures = kSlow};
  again.figures.bytes_per_ns *= 2;
  again.figures.latency *= 1.4;
  EXPECT_EQ(add(links, "one", again).latency, kSlow.latency);
  EXPECT_EQ(links["one"].bytes_per_ns, again.figures.bytes_per_ns);
}

TEST(KnownLinks, AreNotReplacedByADisturbedMeasurement) {
  KnownLinks links = {{"one", kSlow}};
  MeasuredLink again = {.figures = kSlow, .rate_spread = 1.8, .latency_spread = 3};
  again.figures.bytes_per_ns /= 2;
  again.figures.latency *= 5;
  again.figures.processor = 0.01;
  EXPECT_EQ(add(links, "one", again), kSlow);
  again.figures.bytes_per_ns *= 20;  // more than a disturbance explains
  EXPECT_EQ(add(links, "one", again).bytes_per_ns, again.figures.bytes_per_ns);
}

// The first measurement may have been disturbed, and all later ones.
TEST(KnownLinks, GiveWayToAFasterOneThatWasDisturbedToo) {
  KnownLinks links = {{"one", kSlow}};
  MeasuredLink again = {.figures = kSlow, .rate_spread = 5, .latency_spread = 1000};
  again.figures.bytes_per_ns *= 1.9;  // a burst
  again.figures.latency /= 3;
  EXPECT_EQ(add(links, "one", again).bytes_per_ns, kSlow.bytes_per_ns);
  EXPECT_EQ(links["one"].latency, again.figures.latency);
  again.figures.bytes_per_ns *= 2;
  EXPECT_EQ(add(links, "one", again), again.figures);
}

TEST(KnownLinks, KeepAProcessorsTimeWhereNoneWasMeasured) {
  KnownLinks links = {{"one", kSlow}};
  MeasuredLink again = {.figures = kSlow, .has_processor = false};
  again.figures.processor = 0.1;
  EXPECT_EQ(add(links, "one", again).processor, kSlow.processor);
  again.figures.bytes_per_ns *= 8;
  EXPECT_EQ(add(links, "one", again).processor, kSlow.processor);
}

TEST(KnownLinks, AreNotLostWhereProcessesWriteAtOnce) {
  const test::Folder folder;
  const std::string path = links_path(folder / "some/plans");
  std::vector<std::thread> writers;
  writers.reserve(4);
  for (int writer = 0; writer < 4; ++writer) {
    writers.emplace_back([&, writer] {
      for (int i = 0; i < 8; ++i) {
        change_text(path, [&](std::string_view text) {
          KnownLinks links = parse_links(text);
          add(links, std::to_string(writer * 8 + i), {.figures = kSlow});
          return text_of(links);
        });
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(parse_links(*read_text(path)).size(), 32U);
}

TEST(KnownLinks, LeaveOutWhatTheyCannotRead) {
  EXPECT_TRUE(parse_links("").empty());
  EXPECT_TRUE(parse_links("plait links 2\na | 1 | 1 | 1\n").empty());
  const KnownLinks links = parse_links(
      "plait links 1\na | 1 | 1\nb | 1 | x | 1\nc | 1 | 0 | 1\nd | -1 | 1 | 1\ne | 1 | inf | 1\n"
      "f | 1 | 2 | 3\n");
  ASSERT_EQ(links.size(), 1U);
  EXPECT_EQ(links.begin()->first, "f");
}

}  // namespace
}  // namespace plait::plan
