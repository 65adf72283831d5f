#include "cli/bench/recording.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/clock.h"
#include "cli/speech.h"
#include "comm/state.h"
#include "plait/collectives.h"
#include "trace/pack.h"

namespace plait::cli {
namespace {

constexpr std::size_t kRuns = 3;

// Of a thread: enough for some plans of problems that have thousands of chunks, in 16 MiB.
constexpr std::size_t kRecords = (std::size_t{1} << 18) - 1;

// Every rank's bytes, on every rank.
std::vector<std::vector<std::byte>> gather(const std::vector<std::byte>& mine, Communicator& comm) {
  const auto world = static_cast<std::size_t>(comm.world());
  std::vector<std::int64_t> sizes(world);
  const auto size = static_cast<std::int64_t>(mine.size());
  all_gather({&size, sizeof(size), Dtype::s8}, {sizes.data(), sizeof(size) * world, Dtype::s8},
             comm);
  const std::vector<std::size_t> counts(sizes.begin(), sizes.end());
  std::size_t total = 0;
  for (const std::size_t count : counts) total += count;
  std::vector<std::byte> all(total);
  all_gather({mine.data(), mine.size(), Dtype::s8}, {all.data(), total, Dtype::s8}, comm, counts);
  std::vector<std::vector<std::byte>> each;
  each.reserve(world);
  auto next = all.begin();
  for (const std::size_t count : counts) {
    const auto end = next + static_cast<std::ptrdiff_t>(count);
    each.emplace_back(next, end);
    next = end;
  }
  return each;
}

// When all ranks together were at it: the ranks of one host have one clock.
Interval of_all(const Interval& mine, Communicator& comm) {
  std::vector<std::byte> bytes(sizeof(mine));
  std::memcpy(bytes.data(), &mine, sizeof(mine));
  Interval whole = mine;
  for (const std::vector<std::byte>& theirs : gather(bytes, comm)) {
    Interval other = {};
    std::memcpy(&other, theirs.data(), sizeof(other));
    whole.begin = std::min(whole.begin, other.begin);
    whole.end = std::max(whole.end, other.end);
  }
  return whole;
}

}  // namespace

Recording::Recording(Communicator& comm) : comm_(comm), trace_(comm.rank(), kRecords) {
  comm.state().set_trace(&trace_);
}

Recording::~Recording() { comm_.state().set_trace(nullptr); }

Interval Recording::run(std::string_view name, const std::function<void()>& call) {
  std::array<Interval, kRuns> runs = {};
  for (Interval& one : runs) {
    barrier(comm_);
    const base::Nanoseconds begin = base::now();
    call();
    one = {.begin = begin, .end = base::now()};
    // No span: what the run waits for is no computing.
    trace_.flight(Lane::compute, trace_.intern(name), one);
  }
  for (Interval& one : runs) one = of_all(one, comm_);
  std::sort(runs.begin(), runs.end(),
            [](const Interval& a, const Interval& b) { return a.end - a.begin < b.end - b.begin; });
  return runs[kRuns / 2];
}

std::vector<trace::RankRecords> Recording::collect() {
  std::vector<trace::RankRecords> ranks;
  for (const std::vector<std::byte>& pack : gather(trace_.pack(), comm_)) {
    if (comm_.rank() != 0) continue;
    ranks.push_back(trace::unpack(pack));
    if (const std::int64_t dropped = ranks.back().dropped; dropped > 0) {
      complain("plait", base::sentence("the timeline lacks the oldest ", dropped,
                                       " records of rank ", ranks.back().rank,
                                       ": what was drawn first has holes; ask for fewer plans"));
    }
  }
  return ranks;
}

}  // namespace plait::cli
