#include "comm/engines/ucx/plugin/lanes.h"

#include <algorithm>
#include <vector>

namespace plait::comm::ucx {
namespace {

struct Lane {
  std::string mover;  // transport and device
  bool is_for_rendezvous;
  bool is_for_messages;
};

// "rc_mlx5/mlx5_0:1" of the line above; what follows the last dot is UCX's number of the path.
std::string mover_in(std::string_view line) {
  const std::size_t label = line.find("]:");
  const std::size_t number = label == line.npos ? label : line.find(':', label + 2);
  if (number == line.npos) return {};
  const std::string_view rest = line.substr(number + 1);
  const std::string_view word = rest.substr(0, rest.find(' '));
  return std::string(word.substr(0, word.rfind('.')));
}

std::vector<Lane> lanes_in(std::string_view printed) {
  std::vector<Lane> lanes;
  for (std::size_t at = printed.find("lane["); at != printed.npos;
       at = printed.find("lane[", at + 1)) {
    const std::string_view line = printed.substr(at, printed.find('\n', at) - at);
    lanes.push_back({.mover = mover_in(line),
                     .is_for_rendezvous = line.find(" rma_bw") != line.npos,
                     .is_for_messages = line.find(" am") != line.npos});
  }
  return lanes;
}

}  // namespace

Lanes read_lanes(std::string_view printed) {
  const std::vector<Lane> lanes = lanes_in(printed);
  const auto is_tcp = [](const Lane& lane) { return lane.mover.starts_with("tcp/"); };
  Lanes read;
  read.has_only_tcp = !lanes.empty() && std::all_of(lanes.begin(), lanes.end(), is_tcp);
  const auto fetches = [&](const Lane& lane) { return lane.is_for_rendezvous && !is_tcp(lane); };
  read.can_fetch = std::any_of(lanes.begin(), lanes.end(), fetches);
  std::vector<std::string> seen;
  for (const Lane& lane : lanes) {
    const bool is_meant = read.can_fetch ? fetches(lane) : lane.is_for_messages;
    if (!is_meant || std::find(seen.begin(), seen.end(), lane.mover) != seen.end()) continue;
    seen.push_back(lane.mover);
    read.movers += (read.movers.empty() ? "" : " and ") + lane.mover;
  }
  return read;
}

}  // namespace plait::comm::ucx
