#include "comm/modelled/network.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "comm/emulated/link_clock.h"

namespace plait::comm::modelled {
namespace {

// Gaps older than the last so many are never used: no rank hands over a chunk in the past.
constexpr std::size_t kRemembered = 256;

constexpr std::array<std::string_view, 3> kNames = {"pairs", "ports", "shared"};

}  // namespace

std::string_view name(Wiring wiring) { return kNames[static_cast<std::size_t>(wiring)]; }

Wires::Wires(const Network& network, int world)
    : network_(network), world_(static_cast<std::size_t>(world)) {
  check_link(network.link);
  switch (network.wiring) {
    case Wiring::pairs:
      free_out_.resize(world_ * world_);
      break;
    case Wiring::ports:
      free_out_.resize(world_);
      taken_in_.resize(world_);
      break;
    case Wiring::shared:
      free_out_.resize(1);
      break;
  }
}

TimeInterval Wires::book(int source, int destination, std::size_t bytes, base::Nanoseconds from) {
  const Link& link = network_.link;
  const auto occupied = static_cast<base::Nanoseconds>(
      std::llround(static_cast<double>(bytes) * 1e9 / link.bytes_per_second));
  const auto to = static_cast<std::size_t>(destination);
  const auto out = static_cast<std::size_t>(source);
  switch (network_.wiring) {
    case Wiring::pairs: {
      base::Nanoseconds& free = free_out_[out * world_ + to];
      const base::Nanoseconds begin = std::max(from, free);
      free = begin + occupied;
      return {.begin = begin, .end = free + link.latency_ns};
    }
    case Wiring::ports: {
      // A switch forwards bytes while they arrive, and stores those that must wait for the wire to
      // their rank.
      const base::Nanoseconds begin = std::max(from, free_out_[out]);
      free_out_[out] = begin + occupied;
      return {.begin = begin, .end = take_in(to, begin, occupied) + link.latency_ns};
    }
    case Wiring::shared: {
      const base::Nanoseconds begin = std::max(from, free_out_[0]);
      free_out_[0] = begin + occupied;
      return {.begin = begin, .end = free_out_[0] + link.latency_ns};
    }
  }
  return {.begin = from, .end = from};
}

// The first gap that is long enough; returns when it has passed.
base::Nanoseconds Wires::take_in(std::size_t destination, base::Nanoseconds from,
                                 base::Nanoseconds occupied) {
  std::deque<TimeInterval>& taken = taken_in_[destination];
  auto next = std::partition_point(taken.begin(), taken.end(),
                                   [&](const TimeInterval& one) { return one.end < from; });
  base::Nanoseconds begin = from;
  for (; next != taken.end() && next->begin < begin + occupied; ++next)
    begin = std::max(begin, next->end);
  const base::Nanoseconds end = begin + occupied;
  // Adjacent intervals become one.
  const bool joins_before = next != taken.begin() && std::prev(next)->end == begin;
  const bool joins_behind = next != taken.end() && next->begin == end;
  if (joins_before && joins_behind) {
    std::prev(next)->end = next->end;
    taken.erase(next);
  } else if (joins_before) {
    std::prev(next)->end = end;
  } else if (joins_behind) {
    next->begin = begin;
  } else {
    taken.insert(next, {.begin = begin, .end = end});
  }
  if (taken.size() > kRemembered) taken.pop_front();
  return end;
}

}  // namespace plait::comm::modelled
