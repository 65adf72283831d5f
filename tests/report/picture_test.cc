#include "report/picture.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "report/page.h"

namespace plait::report {
namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

// Two ranks with two products each, a sum, and a chunk on its way.
std::vector<Bar> bars() {
  std::vector<Bar> all;
  for (const int rank : {0, 1}) {
    all.push_back({.rank = rank, .row = Row::product, .name = "product", .begin = 0, .end = 200});
    all.push_back({.rank = rank,
                   .row = Row::product,
                   .name = "product",
                   .begin = 300,
                   .end = 400,
                   .args = {.flops = 1500}});
    all.push_back(
        {.rank = rank, .row = Row::communication, .name = "sum", .begin = 220, .end = 260});
    all.push_back({.rank = rank,
                   .row = Row::link,
                   .name = "chunk",
                   .begin = 50,
                   .end = 320,
                   .args = {.bytes = 64, .peer = 1, .chunk = 3}});
    all.push_back({.rank = rank, .row = Row::exposed, .name = "exposed", .begin = 200, .end = 300});
  }
  return all;
}

Timeline two_runs() {
  Timeline timeline = {.title = "a < b & \"c\"",
                       .subtitle = "two ranks",
                       .product = 300,
                       .collective = 270,
                       .runs = {{.title = "serial", .length = 700, .bars = bars()},
                                {.title = "fused", .length = 500, .bars = bars()}}};
  timeline.runs[1].efficiency = 0.75;
  return timeline;
}

TEST(Pictures, HaveEveryBarOfEveryRun) {
  const Timeline timeline = two_runs();
  std::size_t bars = 0;
  for (const auto& run : timeline.runs) bars += run.bars.size();
  const std::string svg = picture(timeline);
  for (const std::string& text : {svg, picture_file(timeline)}) {
    EXPECT_EQ(count(text, "<rect class=\"bar "), bars);
    EXPECT_NE(text.find("fused: 500 ns, 1.40 times as fast, efficiency 0.75"), std::string::npos);
  }
  EXPECT_EQ(count(svg, "<title>"), bars + 4);               // the ideal of each rank in each run
  EXPECT_EQ(count(picture_file(timeline), "<title>"), 2U);  // the picture's own, and the ideal's
}

// A printed page can break between ranks, but not within one; a file is one picture.
TEST(Pictures, InAPageAreOneForEachRank) {
  const std::string svg = picture(two_runs());
  EXPECT_EQ(count(svg, "<svg "),
            2U + 4U);  // the legend's, the remark's, and two ranks' of two runs
  EXPECT_EQ(count(svg, "</svg>"), 6U);
  EXPECT_EQ(count(svg, "class=\"axis\""), 2U);
  EXPECT_EQ(count(svg, "id=\"plot\""), 1U);
  EXPECT_NE(svg.find("viewBox=\"0 26 1200 98\""), std::string::npos);   // title, and four rows
  EXPECT_NE(svg.find("viewBox=\"0 124 1200 82\""), std::string::npos);  // four rows, and times
  const std::string file = picture_file(two_runs());
  EXPECT_EQ(count(file, "<svg "), 1U);
  EXPECT_EQ(count(file, "class=\"axis\""), 1U);
}

TEST(Pictures, SayWhatTheyAreWhereNobodyElseDoes) {
  const std::string svg = picture(two_runs());
  const std::string file = picture_file(two_runs());
  EXPECT_EQ(count(svg, ">a &lt; b &amp; &quot;c&quot;</text>"), 0U);
  EXPECT_EQ(count(file, ">a &lt; b &amp; &quot;c&quot;</text>"), 1U);
  EXPECT_EQ(count(svg, ">two ranks</text>"), 0U);
  EXPECT_EQ(count(file, ">two ranks</text>"), 1U);
  EXPECT_EQ(count(svg, " width=\"900\" height="), 0U);
  EXPECT_EQ(count(file.substr(0, 120), " width=\"900\" height="), 1U);
  EXPECT_EQ(count(file, "class=\"paper\""), 1U);  // otherwise a dark page may show through
}

TEST(Pictures, AreOfTextThatNobodyMistakesForMarkup) {
  const std::string html = page(two_runs());
  EXPECT_NE(html.find("<h1>a &lt; b &amp; &quot;c&quot;</h1>"), std::string::npos);
  EXPECT_EQ(html.find("a < b"), std::string::npos);
  EXPECT_EQ(count(html, "http://"), count(html, "http://www.w3.org/2000/svg"));
  EXPECT_EQ(count(html, "https://"), 0U);
}

// Thousands of ranks would have millions of bars.
TEST(Pictures, OfManyRanksHaveTheFirstOnes) {
  report::Run run = {.title = "serial", .length = 1000};
  for (int rank = 0; rank < 100; ++rank) {
    for (int i = 0; i < 10'000; ++i)
      run.bars.push_back({.rank = rank, .row = Row::link, .name = "chunk", .begin = i, .end = i});
  }
  const std::string text = picture({.title = "", .subtitle = "", .runs = {run}});
  EXPECT_NE(text.find("; only the first 6 of 100 ranks are drawn"), std::string::npos);
  EXPECT_NE(text.find(">rank 5<"), std::string::npos);
  EXPECT_EQ(text.find(">rank 6<"), std::string::npos);
}

TEST(Pictures, SayHowFastAProductWas) {
  // One product of two runs' two ranks says its operations: 1500 in 100 ns.
  EXPECT_EQ(count(picture(two_runs()), ", 15 GFLOP/s<"), 4U);
}

TEST(Pictures, EscapeWhatXmlReserves) {
  EXPECT_EQ(escaped("a < b && c > \"d\""), "a &lt; b &amp;&amp; c &gt; &quot;d&quot;");
  EXPECT_EQ(escaped(""), "");
}

TEST(Pictures, OfNothingAreNoError) {
  EXPECT_FALSE(page({.title = "nothing", .subtitle = "", .runs = {}}).empty());
}

}  // namespace
}  // namespace plait::report
