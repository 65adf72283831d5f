// Shared by the tests of timelines: a parser, and the records of a made-up rank.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "folder.h"
#include "trace/record.h"

namespace plait::trace {

using test::Folder;
using test::slurp;

inline nlohmann::json parse(const std::string& path) { return nlohmann::json::parse(slurp(path)); }

inline std::vector<nlohmann::json> of_phase(const nlohmann::json& timeline, const char* phase) {
  std::vector<nlohmann::json> found;
  for (const auto& event : timeline.at("traceEvents")) {
    if (event.at("ph") == phase) found.push_back(event);
  }
  return found;
}

// One record of each kind, nested spans, two threads, and all lanes.
inline RankRecords made_up(int rank) {
  const auto record = [](Kind kind, Lane lane, std::uint32_t thread, base::Nanoseconds begin,
                         base::Nanoseconds end) {
    return Record{.kind = kind,
                  .lane = lane,
                  .thread = thread,
                  .label = static_cast<std::uint32_t>(lane),
                  .begin = begin,
                  .end = end};
  };
  RankRecords all;
  all.rank = rank;
  all.dropped = 3;
  all.uncertainty = 250;
  all.labels = {"matmul", "chunk", "arrival"};
  all.records = {record(Kind::span, Lane::compute, 0, 2000, 3000),
                 record(Kind::span, Lane::compute, 0, 3000, 4500),
                 record(Kind::span, Lane::compute, 0, 1500, 4500),
                 record(Kind::span, Lane::wait, 0, 4600, 5001),
                 record(Kind::mark, Lane::comm, 0, 2500, 2500),
                 record(Kind::count, Lane::compute, 0, 2500, 2500),
                 record(Kind::flight, Lane::comm, 1, 1400, 2600),
                 record(Kind::flight, Lane::comm, 1, 1700, 2700)};
  all.records[0].args = {.bytes = 1 << 20, .flops = 1LL << 40, .peer = 1, .chunk = 0};
  all.records[5].args.bytes = -7;
  return all;
}

}  // namespace plait::trace
