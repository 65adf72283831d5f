#include "comm/meet/group_channel.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace plait::comm::shm {
namespace {

std::vector<int> numbers_below(int count) {
  std::vector<int> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

}  // namespace

GroupChannel::GroupChannel(std::vector<base::Fd> sockets, int world)
    : GroupChannel(std::make_shared<Connections>(std::move(sockets)), Connections::kFirst,
                   numbers_below(world)) {}

GroupChannel::GroupChannel(std::shared_ptr<Connections> connections, Connections::Channel number,
                           std::vector<int> lines)
    : connections_(std::move(connections)),
      number_(number),
      lines_(std::move(lines)),
      coordinator_(static_cast<int>(std::find(lines_.begin(), lines_.end(), 0) - lines_.begin())) {}

GroupChannel GroupChannel::among(const std::vector<int>& members,
                                 Connections::Channel number) const {
  std::vector<int> lines;
  lines.reserve(members.size());
  for (const int member : members) lines.push_back(lines_[member]);
  return {connections_, number, std::move(lines)};
}

void GroupChannel::close(const std::vector<int>& peers) const {
  std::vector<int> lines;
  lines.reserve(peers.size());
  for (const int peer : peers) lines.push_back(lines_[peer]);
  connections_->close(number_, lines);
}

void GroupChannel::wait_readable(const std::vector<int>& peers, base::Nanoseconds longest) const {
  std::vector<const base::Fd*> sockets;
  sockets.reserve(peers.size());
  for (const int peer : peers) sockets.push_back(&socket_to(peer));
  base::wait_readable(sockets, longest);
}

}  // namespace plait::comm::shm
