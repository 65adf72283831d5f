#include "trace/json.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "plait/error.h"
#include "timeline.h"

namespace plait::trace {
namespace {

using nlohmann::json;

json written(const std::vector<RankRecords>& ranks) {
  const Folder folder;
  const std::string path = folder / "timeline.json";
  write_json(path, ranks);
  return parse(path);
}

// The fields that the trace event format requires for each phase.
void expect_documented_form(const json& event) {
  const std::map<std::string, std::set<std::string>> needs = {
      {"X", {"name", "cat", "pid", "tid", "ts", "dur"}},
      {"b", {"name", "cat", "pid", "tid", "ts", "id2"}},
      {"e", {"name", "cat", "pid", "tid", "ts", "id2"}},
      {"i", {"name", "cat", "pid", "tid", "ts", "s"}},
      {"C", {"name", "pid", "ts", "args"}},
      {"M", {"name", "pid", "args"}}};
  ASSERT_TRUE(needs.contains(event.at("ph"))) << event;
  for (const std::string& key : needs.at(event.at("ph"))) ASSERT_TRUE(event.contains(key)) << event;
  for (const char* key : {"pid", "tid"}) {
    if (event.contains(key)) {
      EXPECT_TRUE(event[key].is_number_integer()) << event;
    }
  }
  for (const char* key : {"ts", "dur"}) {
    if (event.contains(key)) {
      EXPECT_TRUE(event[key].is_number() && event[key] >= 0) << event;
    }
  }
  for (const char* key : {"name", "cat", "s"}) {
    if (event.contains(key)) {
      EXPECT_TRUE(event[key].is_string()) << event;
    }
  }
  if (event.contains("args")) {
    EXPECT_TRUE(event["args"].is_object()) << event;
  }
}

TEST(Json, EveryEventHasItsDocumentedForm) {
  const json timeline = written({made_up(0), made_up(1)});
  EXPECT_EQ(timeline.at("displayTimeUnit"), "ns");
  std::set<std::string> phases;
  for (const json& event : timeline.at("traceEvents")) {
    expect_documented_form(event);
    phases.insert(event.at("ph"));
  }
  EXPECT_EQ(phases, (std::set<std::string>{"X", "b", "e", "i", "C", "M"}));
}

TEST(Json, RanksAndTracksHaveNames) {
  std::map<std::pair<int, int>, std::string> names;
  for (const json& event : of_phase(written({made_up(0), made_up(12)}), "M")) {
    const std::string what = event.at("name");
    if (what == "process_name" || what == "thread_name") {
      names[{event.at("pid"), event.value("tid", 0)}] = event.at("args").at("name");
    }
  }
  const std::map<std::pair<int, int>, std::string> expected = {
      {{0, 0}, "rank 0"}, {{0, 1}, "compute"},  {{0, 2}, "comm"},     {{0, 3}, "wait"},
      {{0, 5}, "comm 1"}, {{12, 0}, "rank 12"}, {{12, 1}, "compute"}, {{12, 2}, "comm"},
      {{12, 3}, "wait"},  {{12, 5}, "comm 1"}};
  EXPECT_EQ(names, expected);
}

TEST(Json, TimesAreMicrosecondsFromTheEarliestRecord) {
  auto late = made_up(1);
  for (Record& record : late.records) {
    record.begin += 1'000'000'000'000'001;
    record.end += 1'000'000'000'000'001;
  }
  const json timeline = written({made_up(0), late});
  EXPECT_EQ(timeline.at("otherData").at("origin_ns"), "1400");
  const auto spans = of_phase(timeline, "X");
  ASSERT_EQ(spans.size(), 8);
  // Parents come first: the outer span was recorded after its children.
  EXPECT_EQ(spans[0].at("ts"), 0.1);
  EXPECT_EQ(spans[0].at("dur"), 3.0);
  EXPECT_EQ(spans[1].at("ts"), 0.6);
  EXPECT_EQ(spans[3].at("dur"), 0.401);
  EXPECT_EQ(spans[4].at("ts"), 1'000'000'000'000.101);
}

TEST(Json, OnlyKnownArgumentsAreWritten) {
  const json timeline = written({made_up(0)});
  const auto spans = of_phase(timeline, "X");
  EXPECT_FALSE(spans[0].contains("args"));
  EXPECT_EQ(spans[1].at("args"),
            (json{{"bytes", 1 << 20}, {"flops", 1LL << 40}, {"peer", 1}, {"chunk", 0}}));
  EXPECT_EQ(of_phase(timeline, "C").at(0).at("args"), (json{{"value", -7}}));
}

TEST(Json, FlightsArePairsOfTheirOwn) {
  using Place = std::pair<int, std::string>;  // the rank, and an id unique within it
  const auto place = [](const json& event) {
    return Place{event.at("pid"), event.at("id2").at("local")};
  };
  std::map<Place, std::pair<double, double>> flights;
  const json timeline = written({made_up(0), made_up(1)});
  for (const json& event : of_phase(timeline, "b")) flights[place(event)].first = event.at("ts");
  for (const json& event : of_phase(timeline, "e")) flights[place(event)].second = event.at("ts");
  const std::map<Place, std::pair<double, double>> expected = {{{0, "1"}, {0.0, 1.2}},
                                                               {{0, "2"}, {0.3, 1.3}},
                                                               {{1, "1"}, {0.0, 1.2}},
                                                               {{1, "2"}, {0.3, 1.3}}};
  EXPECT_EQ(flights, expected);
}

TEST(Json, LossesAreSaid) {
  auto whole = made_up(1);
  whole.dropped = 0;
  const json timeline = written({made_up(0), whole});
  EXPECT_EQ(timeline.at("otherData").at("dropped"), (json{{"0", 3}, {"1", 0}}));
  std::vector<std::tuple<int, std::string>> labels;
  for (const json& event : of_phase(timeline, "M")) {
    if (event.at("name") == "process_labels") {
      labels.emplace_back(event.at("pid"), event.at("args").at("labels"));
    }
  }
  EXPECT_EQ(labels, (std::vector<std::tuple<int, std::string>>{{0, "3 older records dropped"}}));
}

TEST(Json, ClocksAreJudged) {
  auto first = made_up(0);
  first.uncertainty = 0;
  const json timeline = written({first, made_up(1)});
  EXPECT_EQ(timeline.at("otherData").at("clock_uncertainty_ns"), (json{{"0", 0}, {"1", 250}}));
}

TEST(Json, StrangeLabelsSurvive) {
  auto all = made_up(0);
  all.labels[0] = "\"}],\n\\ \xff größe";
  EXPECT_EQ(of_phase(written({all}), "X").at(0).at("name"), "\"}],\n\\ \ufffd größe");
}

TEST(Json, NoRecordsAndNoRanksAreTimelinesToo) {
  EXPECT_EQ(written({}).at("traceEvents").size(), 0);
  EXPECT_EQ(of_phase(written({RankRecords{}}), "M").size(), 2);
}

}  // namespace
}  // namespace plait::trace
