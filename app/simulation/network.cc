#include "simulation/network.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "comm/emulated/link_clock.h"

namespace plait::comm::modelled {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"pairs", "ports", "shared"};

base::Nanoseconds nanoseconds(double count) {
  return static_cast<base::Nanoseconds>(std::llround(count));
}

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
      into_.resize(world_);
      break;
    case Wiring::shared:
      free_out_.resize(1);
      break;
  }
  if (network.processor_ns_per_byte > 0) processors_.resize(world_);
}

TimeInterval Wires::book(int source, int destination, std::size_t bytes, base::Nanoseconds from) {
  const auto sender = static_cast<std::size_t>(source);
  const auto receiver = static_cast<std::size_t>(destination);
  const auto size = static_cast<double>(bytes);
  const base::Nanoseconds occupied = nanoseconds(size * 1e9 / network_.link.bytes_per_second);
  TimeInterval flight = carry(sender, receiver, occupied, from);
  if (processors_.empty()) return flight;
  const base::Nanoseconds work = nanoseconds(size * network_.processor_ns_per_byte);
  const base::Nanoseconds sent = processors_[sender].take(flight.begin, work);
  const base::Nanoseconds received = processors_[receiver].take(flight.end - occupied, work);
  flight.end = std::max({flight.end, sent + network_.link.latency_ns, received});
  return flight;
}

TimeInterval Wires::carry(std::size_t out, std::size_t to, base::Nanoseconds occupied,
                          base::Nanoseconds from) {
  const Link& link = network_.link;
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
      return {.begin = begin, .end = into_[to].take(begin, occupied) + link.latency_ns};
    }
    case Wiring::shared: {
      const base::Nanoseconds begin = std::max(from, free_out_[0]);
      free_out_[0] = begin + occupied;
      return {.begin = begin, .end = free_out_[0] + link.latency_ns};
    }
  }
  return {.begin = from, .end = from};
}

base::Nanoseconds Wires::worked_until(int rank, base::Nanoseconds now) {
  return processors_.empty() ? 0 : processors_[static_cast<std::size_t>(rank)].taken_until(now);
}

}  // namespace plait::comm::modelled
