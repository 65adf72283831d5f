#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "plait/trace.h"
#include "timeline.h"

namespace plait {
namespace {

// Runs the users' reader on real records of a program.
TEST(TraceCheck, ReadsWhatATraceWrites) {
  Trace first(0, 255);
  Trace second(1);
  for (Trace* trace : {&first, &second}) {
    for (int i = 0; i < 300; ++i) {
      const Span product(trace, Lane::compute, "matmul \"tile\"\n", {.flops = 1 << 20});
      const Span wait(trace, Lane::wait, "arrival", {.peer = 1 - trace->rank(), .chunk = i});
      trace->mark(Lane::comm, "posted", {.chunk = i});
      trace->count("in flight", i);
    }
    trace->flight(Lane::comm, "chunk", {.begin = 1000, .end = 2000});
    trace->flight(Lane::comm, "chunk", {.begin = 1500, .end = 2500});
  }
  const trace::Folder folder;
  const std::string path = folder / "timeline.json";
  write_json(path, std::vector{first.pack(), second.pack()});
  const std::string command = std::string(PLAIT_PYTHON " " PLAIT_TRACE_CHECK " --json ") + path +
                              " > " + folder / "summary.json";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const auto summary = trace::parse(folder / "summary.json");
  EXPECT_EQ(summary.at("dropped"), (nlohmann::json{{"0", 1202 - 255}, {"1", 0}}));
  std::map<std::pair<int, std::string>, int> spans;
  for (const auto& row : summary.at("rows"))
    spans[{row.at("rank"), row.at("lane")}] = row.at("spans");
  EXPECT_EQ((spans[{1, "compute"}]), 300);
  EXPECT_EQ((spans[{1, "wait"}]), 300);
}

}  // namespace
}  // namespace plait
